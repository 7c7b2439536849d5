"""Modules that exist only under torch's name; `tables.STAND_INS` says under which."""
