#!/usr/bin/env python3
"""api/openapi.yaml -> api/openapi.json (committed; embedded beside the yaml).
Run it after each change of the yaml.

Usage: to_json.py [--check]   with --check nothing is written and a difference is an error.
"""
import hashlib
import json
import os
import sys

import yaml  # python3-yaml

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "openapi.yaml"), encoding="utf-8") as f:
    source = f.read()
document = yaml.safe_load(source)
# By it tests/contract sees, without Python, that the two belong together.
document["info"]["x-source-sha256"] = hashlib.sha256(source.encode()).hexdigest()
text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
target = os.path.join(here, "openapi.json")
if "--check" in sys.argv[1:]:
    with open(target, encoding="utf-8") as f:
        if f.read() != text:
            sys.exit("api/openapi.json is not what api/openapi.yaml says: run ./dev fmt")
else:
    with open(target, "w", encoding="utf-8") as f:
        f.write(text)
