"""The tutorial "From MySQL to Elasticsearch": its shell blocks are run as they stand, one after the other."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.elasticsearch import call
from support.klamm import KLAMM, Server, up_words

PAGE = Path(__file__).parents[2] / "docs/tutorials/mysql-to-elasticsearch.md"
INDEX = "shop.klamm_shop.orders"


@pytest.mark.timeout(300)
def test_the_blocks_of_the_tutorial_do_what_it_says(mariadb, elasticsearch_server, tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    try:
        with Server(*up_words(tmp_path / "data")) as up:
            env = os.environ | {
                "PATH": f"{KLAMM.parent}:{os.environ['PATH']}",
                "MYSQL_HOST": "127.0.0.1",
                "MYSQL_PORT": str(mariadb.port),
                "MYSQL_USER": "root",
                "MYSQL_PASSWORD": "",
                "ELASTICSEARCH_URL": elasticsearch_server.url,
                "KLAMM_REST_URL": up.ready["rest"],
            }
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
                env=env,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{up.errors[-40:]}"
            _, found = call(elasticsearch_server, "GET", f"{INDEX}/_search")
            rows = {
                h["_id"]: (h["_source"]["customer"], float(h["_source"]["total"]))
                for h in found["hits"]["hits"]
            }
            assert rows == {"1": ("Ada", 15.0), "3": ("Linus", 7.0), "4": ("Barbara", 1.25)}
    finally:
        mariadb.sql("DROP DATABASE IF EXISTS klamm_shop")
        call(elasticsearch_server, "DELETE", INDEX)
