"""One file a kind of op: shapes, geometry and the choice of a schedule at launch."""
