// The stand-in must behave like CUDA where the code under test relies on it, and must reject what CUDA rejects.
#include "stand_ins/cuda/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/device/handles.h"

namespace ddp::testing {
namespace {

using ::testing::ElementsAre;

struct Streams {
  cuda::Stream first;
  cuda::Stream second;
  cuda::Event event;
};

TEST(StandInCuda, AStreamDoesItsWorkInOrder) {
  const Streams s;
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) enqueue(s.first.get(), "work", [&order, i] { order.push_back(i); });
  ASSERT_EQ(cudaStreamSynchronize(s.first.get()), cudaSuccess);
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4));
}

TEST(StandInCuda, AnEventHoldsTheOtherStream) {
  const Streams s;
  std::promise<void> open;
  std::vector<int> order;
  enqueue(s.first.get(), "gate", [gate = open.get_future().share()] { gate.wait(); });
  enqueue(s.first.get(), "before", [&] { order.push_back(1); });
  ASSERT_EQ(cudaEventRecord(s.event.get(), s.first.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(s.second.get(), s.event.get(), 0), cudaSuccess);
  enqueue(s.second.get(), "after", [&] { order.push_back(2); });
  EXPECT_EQ(cudaStreamQuery(s.second.get()), cudaErrorNotReady);
  open.set_value();
  ASSERT_EQ(cudaStreamSynchronize(s.second.get()), cudaSuccess);
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST(StandInCuda, ARecordingDoesNothingUntilItIsLaunched) {
  const Streams s;
  int count = 0;
  ASSERT_EQ(cudaStreamBeginCapture(s.first.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  enqueue(s.first.get(), "a", [&] { ++count; });
  ASSERT_EQ(cudaEventRecord(s.event.get(), s.first.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(s.second.get(), s.event.get(), 0), cudaSuccess);
  enqueue(s.second.get(), "b", [&] { ++count; });
  enqueue(s.first.get(), "c", [&] { ++count; });
  ASSERT_EQ(cudaEventRecord(s.event.get(), s.second.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(s.first.get(), s.event.get(), 0), cudaSuccess);
  enqueue(s.first.get(), "d", [&] { ++count; });
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(s.first.get(), &graph), cudaSuccess);
  const cuda::Graph owned(graph);
  EXPECT_EQ(count, 0);
  EXPECT_THAT(work_names(graph), ElementsAre("a", "b", "c", "d"));
  EXPECT_TRUE(depends(graph, "b", "a"));
  EXPECT_TRUE(depends(graph, "d", "b"));
  EXPECT_FALSE(depends(graph, "c", "b"));
  EXPECT_FALSE(depends(graph, "b", "c"));

  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  const cuda::GraphExec owned_exec(exec);
  ASSERT_EQ(cudaGraphLaunch(exec, s.first.get()), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, s.first.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s.first.get()), cudaSuccess);
  EXPECT_EQ(count, 8);
}

// A missing dependency is detected, because unordered nodes run in both orders.
TEST(StandInCuda, ARecordingIsReplayedInAnyOrderThatItsDependenciesAllow) {
  const Streams s;
  std::vector<std::string> order;
  const auto note = [&](cudaStream_t stream, const std::string& name) {
    enqueue(stream, name, [&order, name] { order.push_back(name); });
  };
  ASSERT_EQ(cudaStreamBeginCapture(s.first.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  note(s.first.get(), "fork");
  ASSERT_EQ(cudaEventRecord(s.event.get(), s.first.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(s.second.get(), s.event.get(), 0), cudaSuccess);
  note(s.first.get(), "written too late");
  note(s.second.get(), "read");
  ASSERT_EQ(cudaEventRecord(s.event.get(), s.second.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(s.first.get(), s.event.get(), 0), cudaSuccess);
  note(s.first.get(), "join");
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(s.first.get(), &graph), cudaSuccess);
  const cuda::Graph owned(graph);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  const cuda::GraphExec owned_exec(exec);
  std::set<std::vector<std::string>> seen;
  for (int i = 0; i < 100; ++i) {
    order.clear();
    ASSERT_EQ(cudaGraphLaunch(exec, s.first.get()), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(s.first.get()), cudaSuccess);
    seen.insert(order);
  }
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(ElementsAre("fork", "written too late", "read", "join"),
                                                    ElementsAre("fork", "read", "written too late", "join")));
}

TEST(StandInCuda, AQuestionAboutTheStreamSpoilsARecording) {
  const Streams s;
  for (const auto& ask : {cudaStreamQuery, cudaStreamSynchronize}) {
    ASSERT_EQ(cudaStreamBeginCapture(s.first.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(ask(s.first.get()), cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(s.first.get(), &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(ask(s.first.get()), cudaSuccess);
  }
}

TEST(StandInCuda, ARecordingThatIsLeftOpenIsRefused) {
  const Streams s;
  ASSERT_EQ(cudaStreamBeginCapture(s.first.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(s.event.get(), s.first.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(s.second.get(), s.event.get(), 0), cudaSuccess);
  enqueue(s.second.get(), "never joined", [] {});
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(s.first.get(), &graph), cudaErrorStreamCaptureUnjoined);
}

TEST(StandInCuda, AnEventFromOutsideOfARecordingIsRefused) {
  const Streams s;
  ASSERT_EQ(cudaEventRecord(s.event.get(), s.second.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(s.first.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(s.first.get(), s.event.get(), 0), cudaErrorStreamCaptureIsolation);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(s.first.get(), &graph), cudaSuccess);
  const cuda::Graph owned(graph);
}

}  // namespace
}  // namespace ddp::testing
