"""`python -m onlstm_hf`, which is the command `onlstm-hf`."""

import sys

from .cli.main import main

sys.exit(main())
