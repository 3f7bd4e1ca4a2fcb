// Sums over two or more ranks by the real NCCL on one GPU, for tests/gpu/run: the ranks claim to be on different hosts, so
// NCCL accepts them and communicates through sockets.
//
//   mpirun -np 1 -x NCCL_HOSTID=a nccl_pair sums : -np 1 -x NCCL_HOSTID=b nccl_pair sums
//   ... nccl_pair hang        // rank 1 never joins the sum: the others fail with Error(rank_lost) after 5 s, and NCCL is aborted
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "base/error.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/transport/mpi.h"
#include "job/report.h"

namespace ddp {
namespace {

constexpr double kTimeout = 5;
constexpr std::size_t kCount = 1 << 20;

float value_of(int rank, std::size_t index, int step) {
  return std::sin(static_cast<float>(index % 1000) + static_cast<float>(100 * rank + step));
}

// Compares the sums of each step with those of the host, enqueued individually and replayed from a recording.
void sum_steps(Communicator& ranks, Backend& backend, DeviceCommunicator& sums) {
  const Memory values = backend.memory().allocate(kCount * sizeof(float), "the values");
  const Memory host = backend.memory().allocate_for_transfer(kCount * sizeof(float), "the values");
  auto* numbers = host.at<float>(0);
  const auto enqueue = [&] {
    backend.queue().upload(values.data(), host.data(), kCount * sizeof(float));
    sums.all_reduce(values.at<float>(0), kCount / 2);
    sums.all_reduce(values.at<float>(kCount / 2 * sizeof(float)), kCount / 2);
    sums.join();
    backend.queue().download(host.data(), values.data(), kCount * sizeof(float));
  };
  std::unique_ptr<Recording> recording;
  for (int step = 0; step < 20; ++step) {
    for (std::size_t i = 0; i < kCount; ++i) numbers[i] = value_of(ranks.rank(), i, step);
    if (step == 5) recording = backend.queue().record(enqueue);
    if (recording) {
      recording->replay();
    } else {
      enqueue();
    }
    sums.wait("step " + std::to_string(step));
    for (std::size_t i = 0; i < kCount; ++i) {
      double expected = 0;
      for (int rank = 0; rank < ranks.size(); ++rank) expected += static_cast<double>(value_of(rank, i, step));
      // Two to eight values of at most 1: each addition rounds by at most 2^-22.
      check(std::abs(static_cast<double>(numbers[i]) - expected) <= 2e-6, ExitCode::internal,
            "step {}: element {} is {} and should be {}", step, i, numbers[i], expected);
    }
  }
  if (ranks.rank() == 0) {
    std::printf("20 steps summed by %s, %s\n", sums.description().c_str(),
                recording ? "15 of them recorded" : "none recorded");
  }
}

int run(MpiSession& session, bool hang) {
  const auto ranks = make_mpi_communicator(kTimeout);
  const std::unique_ptr<Backend> backend = make_cuda_backend({.ordinal = 0});
  const std::unique_ptr<DeviceCommunicator> sums = make_nccl_communicator(*ranks, backend->device());
  or_abort(session, [&] {
    if (hang && ranks->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
    sum_steps(*ranks, *backend, *sums);
  });
  return 0;
}

}  // namespace
}  // namespace ddp

int main(int argc, char** argv) {
  const bool hang = argc > 1 && std::string(argv[1]) == "hang";
  return ddp::run_program([&](ddp::MpiSession& session) { return ddp::run(session, hang); });
}
