// A module that cannot be loaded because of an undefined symbol.
extern "C" int ddp_needed_and_nowhere();
extern "C" int ddp_open_gpu_module(const char* /*program_version*/) { return ddp_needed_and_nowhere(); }
