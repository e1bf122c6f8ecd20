"""`PYTHONPATH=tests python tests/fuzz/run.py TARGET [libFuzzer options]`: coverage-guided fuzzing with atheris.

atheris is not among the development dependencies, since it has no wheels for every Python that Klamm runs on:
`pip install atheris` where it does. Example: `python tests/fuzz/run.py batch -max_total_time=60`. The seeds are written
into a temporary directory, a crash leaves its input beside the working directory (`crash-...`): make a test of it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> int:
    import atheris

    with atheris.instrument_imports(include=["klamm_broker", "klamm_base"]):
        from fuzz.seeds import SEEDS
        from fuzz.targets import TARGETS, judge
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        print(f"usage: {sys.argv[0]} TARGET [libFuzzer options]; targets: {' '.join(TARGETS)}")
        return 2
    target = sys.argv.pop(1)
    corpus = Path(tempfile.mkdtemp(prefix=f"klamm-fuzz-{target}-"))
    for number, seed in enumerate(SEEDS[target]()):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup([*sys.argv, str(corpus)], lambda data: judge(target, data))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests")]
    sys.exit(main())
