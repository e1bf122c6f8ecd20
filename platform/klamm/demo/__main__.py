"""`python -m klamm.demo`: run the demonstration; exit code 1 when something got lost.

Starts `klamm up` on a temporary data directory, POSTs two connectors, feeds a log file while they run, waits until
everything arrived, and proves it: counts and checksums of the source file, the topic and the sink file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from klamm.demo.feed import Feed
from klamm.demo.platform import Embedded, connectors
from klamm.demo.proof import Proof, prove
from klamm.demo.show import Progress, summary
from klamm_base.errors import KlammError

SETTLE_S = 45.0  # after feeding; with the feeding time the whole stays within what a newcomer waits for


def main() -> int:
    """Runs the demonstration as the command line says."""
    args = _arguments()
    return run(seconds=args.seconds, rate=args.rate, keep=args.keep)


def run(*, seconds: float, rate: int, keep: bool) -> int:
    """Runs the demonstration, and returns 0 when nothing was lost."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="klamm-demo-"))
    try:
        proof = _run(directory, seconds=seconds, rate=rate)
    except KlammError as e:
        sys.stderr.write(f"demo: {e}\n")
        _show_log(directory)
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\ndemo: interrupted\n")
        return 130
    finally:
        if keep:
            print(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return 0 if proof.complete else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="klamm.demo", description=__doc__.split("\n\n")[1])
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long the log file grows (default 20)"
    )
    parser.add_argument("--rate", type=int, default=5000, help="lines a second (default 5000)")
    parser.add_argument(
        "--keep", action="store_true", help="leave files, topics and logs behind and say where"
    )
    return parser.parse_args()


def _run(directory: Path, *, seconds: float, rate: int) -> Proof:
    source, sink = directory / "access.log", directory / "copy.log"
    with Embedded(directory) as embedded:
        print(f"klamm up: broker {embedded.bootstrap}, Connect {embedded.rest}")
        for connector in connectors(source, sink):
            embedded.create(connector)
            print(f"POST /connectors {connector['name']}: {connector['config']['connector.class']}")
        with Feed(source, rate=rate, seconds=seconds) as feed, Progress() as progress:
            counts = progress.until_through(feed, embedded, sink, settle_s=SETTLE_S)
        proof = prove(source, embedded.bootstrap, sink)
        for name in ("local-file-sink", "local-file-source"):
            embedded.delete(name)
            print(f"DELETE /connectors/{name}")
    summary(proof, counts)
    return proof


def _show_log(directory: Path) -> None:
    log = directory / "klamm.log"
    if log.exists():
        tail = log.read_text(errors="replace").splitlines()[-15:]
        sys.stderr.write("last lines of its log:\n" + "".join(f"  {line}\n" for line in tail))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # librdkafka's threads need no farewell
