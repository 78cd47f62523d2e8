"""`python -m ringyard_agents` is `ringyard`."""

import sys

from ringyard_agents.cli import main

sys.exit(main())
