// A module that cannot be loaded: it needs what nobody has.
extern "C" int ddp_needed_and_nowhere();
extern "C" int ddp_open_gpu_module(const char* /*program_version*/) { return ddp_needed_and_nowhere(); }
