// What tests see of the stand-in for CUDA's runtime: streams that are FIFO threads, and recorded graphs to look into.
//
//   enqueue(stream, "backward", [&] { gate.wait(); });     // work of the test's own, in the stream's order
//   EXPECT_TRUE(depends(graph, "update", "sum"));
//
// Linked in place of CUDA's runtime, it carries the calls of src/comm/nccl: device memory is malloc, a stream is a
// thread that does its work in order, an event is a counter; a recording's work is done one after the other, in any
// order that its dependencies allow. Where CUDA would refuse, it refuses: recordings that are left open, events that
// reach from outside into a recording, queries of a stream that is being recorded.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

namespace ddp::testing {

// Work of the test, done by the stream's thread when all before it is done; recorded where the stream is being
// recorded.
void enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work);

// The names of a recording's work, in the order in which they were enqueued.
std::vector<std::string> work_names(cudaGraph_t graph);
// Whether the work `later` of a recording (the first of that name) always begins after the end of `earlier` (the first
// of that name); throws where there is no such work.
bool depends(cudaGraph_t graph, const std::string& later, const std::string& earlier);

// Makes every later query of a stream return this error, as an illegal address in a kernel would; cudaSuccess: no more.
void break_streams(cudaError_t error);
// Bytes of cudaMalloc that were not freed.
std::size_t allocated_bytes();

// Makes only the next synchronization of a stream return this error.
void report_once(cudaError_t error);

// The flags that the last recording was instantiated with.
unsigned long long instantiation_flags();

}  // namespace ddp::testing
