"""``python -m tf_pfor``: see docs/command_line.md."""

import sys

from tf_pfor.frontends.command_line import main

if __name__ == "__main__":
    sys.exit(main())
