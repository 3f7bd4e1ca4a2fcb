// A library that loads but is not a module: it lacks the entry point.
extern "C" int ddp_no_module() { return 0; }
