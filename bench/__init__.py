"""The benchmark across vendors: suites, measuring, roofline, reports."""
