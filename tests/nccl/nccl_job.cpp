// A job on the stand-ins that only reduces, for ten steps; rank 1 fails in step 7 after its first bucket:
//
//   mpirun -np 2 nccl_job fine|hang|broken
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "comm/transport/mpi.h"
#include "job/report.h"
#include "nccl/nccl_rig.h"

namespace ddp {
namespace {

constexpr std::int64_t kSteps = 10;
constexpr std::int64_t kBadStep = 7;

void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void reduce(const testing::ReducerRig& rig, const ReducerConfig& config, bool hangs) {
  const std::vector<float> values(config.elements, 1.0F);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    rig.reducer->begin_step(step);
    float* gradient = rig.reducer->shard_gradient();
    for (const Bucket& bucket : config.buckets) {
      rig.backend->queue().upload(gradient + bucket.begin, values.data() + bucket.begin,
                                  bucket.elements() * sizeof(float));
      rig.reducer->ready(bucket.begin);
      if (hangs && step == kBadStep) hang();
    }
    rig.reducer->shard_done();
    rig.reducer->finish();
    rig.reducer->wait();
  }
}

int run(MpiSession& session, const std::string& how) {
  const auto ranks = make_mpi_communicator(/*timeout_seconds=*/1);
  const ReducerConfig config = testing::model_config(Reduction::ring, true, ranks->size());
  const bool bad = ranks->rank() == 1;
  testing::NcclFaults faults;
  if (bad && how == "broken") faults.broken_sum = static_cast<std::size_t>(kBadStep) * config.buckets.size() + 1;
  const testing::ReducerRig rig = testing::make_nccl_reducer(*ranks, config, faults);
  or_abort(session, [&] { reduce(rig, config, bad && how == "hang"); });
  const std::vector<float> expected(config.elements, static_cast<float>(ranks->size()));
  check(testing::gradient_of(rig, config.elements) == expected, ExitCode::internal, "the sums are wrong");
  if (ranks->rank() == 0) std::printf("%lld steps reduced\n", static_cast<long long>(kSteps));
  return 0;
}

}  // namespace
}  // namespace ddp

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "fine";
  return ddp::run_program([&](ddp::MpiSession& session) { return ddp::run(session, how); });
}
