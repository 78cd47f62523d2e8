"""The notes below tables: conf/comparison_table.yaml has their words."""

from collections.abc import Mapping
from typing import Any

import yaml

from ringyard.config_folder import config_folder

#: content of conf/comparison_table.yaml
TABLE: Mapping[str, Any] = yaml.safe_load((config_folder() / "comparison_table.yaml").read_text())
NOTES: Mapping[str, str] = TABLE["notes"]  #: {name of a note below a table: its text}
