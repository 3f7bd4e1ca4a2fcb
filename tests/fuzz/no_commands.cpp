// The functions that the table of commands names, without what they do: parsing options calls none of them, and with them
// all kernels would be compiled with sanitizers.
#include <cstdlib>

#include "commands/commands.h"

namespace ddp {

int run_train(const MpiSession&, const Options&) { std::abort(); }
int run_eval(const MpiSession&, const Options&) { std::abort(); }
int run_plan(const MpiSession&, const Options&) { std::abort(); }
int run_bench(const MpiSession&, const Options&) { std::abort(); }
int run_check(const MpiSession&, const Options&) { std::abort(); }
int run_pack(const MpiSession&, const Options&) { std::abort(); }
int run_export(const MpiSession&, const Options&) { std::abort(); }
int run_replay(const MpiSession&, const Options&) { std::abort(); }
int run_sweep(const MpiSession&, const Options&) { std::abort(); }
int run_scaling(const MpiSession&, const Options&) { std::abort(); }
int run_report(const MpiSession&, const Options&) { std::abort(); }
int run_compare(const MpiSession&, const Options&) { std::abort(); }
int run_explain(const MpiSession&, const Options&) { std::abort(); }
int run_devices(const MpiSession&, const Options&) { std::abort(); }

}  // namespace ddp
