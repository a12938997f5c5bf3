from lengthwise.cli.main import main

raise SystemExit(main())
