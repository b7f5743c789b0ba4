"""Pure parts of the cache: keys, records, limits, and the twins of the Lua scripts. No I/O, no clock."""
