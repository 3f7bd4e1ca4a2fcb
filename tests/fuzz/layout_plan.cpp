// The text of a layout plan, as stored in checkpoints and the plan cache.
#include "model/layout_plan.h"

#include "fuzz.h"

namespace {

std::vector<ddp::Stage> small_network() {
  ddp::Graph graph({3, 8, 8});
  const int conv = graph.conv("conv1", graph.input(), {.channels = 4, .window = ddp::square(3)});
  const int pooled = graph.max_pool(graph.relu(graph.batch_norm("bn1", conv)), 2);
  graph.linear("fc1", graph.flatten(pooled), 10);
  return ddp::make_stages(graph, 4);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<ddp::Stage> stages = small_network();
  const std::string text(reinterpret_cast<const char*>(data), size);
  ddp::fuzz::parses([&] {
    const std::string plan = ddp::to_text(ddp::layout_plan_from_text(text, stages));
    const std::string again = ddp::to_text(ddp::layout_plan_from_text(plan, stages));
    ddp::fuzz::require(plan == again, "a plan comes back as another one:\n" + plan + again);
  });
  return 0;
}
