// A library that loads and is no module: it has no entry.
extern "C" int ddp_no_module() { return 0; }
