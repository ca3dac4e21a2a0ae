"""`python -m adapter` is the command `fastpath`."""

from adapter.cli.main import main

raise SystemExit(main())
