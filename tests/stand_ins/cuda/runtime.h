// Test interface of the stand-in for CUDA's runtime: streams are FIFO threads, and recorded graphs can be inspected.
//
//   enqueue(stream, "backward", [&] { gate.wait(); });     // a test's own work, in stream order
//   EXPECT_TRUE(depends(graph, "update", "sum"));
//
// Linked in place of CUDA's runtime, it implements the functions that src/comm/nccl calls: device memory is malloc, a
// stream is a thread that executes its work in order, an event is a counter; a graph executes serially, in a random
// order that its dependencies allow. Misuse is rejected as in CUDA: captures that are not joined, events from outside a
// capture, queries of a capturing stream.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

namespace ddp::testing {

// Enqueues a function on the stream's thread, or captures it if the stream is being captured.
void enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work);

// How often work of this name was enqueued or captured, on all streams.
std::size_t enqueued(const std::string& name);

// Names of the nodes of a graph, in the order in which they were enqueued.
std::vector<std::string> work_names(cudaGraph_t graph);
// Returns true if the first node named `later` depends on the first node named `earlier`; throws if either is missing.
bool depends(cudaGraph_t graph, const std::string& later, const std::string& earlier);

// Makes every later query of a stream return `error`, like an illegal address in a kernel; cudaSuccess resets it.
void break_streams(cudaError_t error);
// Bytes allocated by cudaMalloc and not freed.
std::size_t allocated_bytes();

// Makes only the next synchronization of a stream return `error`.
void report_once(cudaError_t error);

// The flags with which the last graph was instantiated.
unsigned long long instantiation_flags();

}  // namespace ddp::testing
