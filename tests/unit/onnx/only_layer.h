// The only layer of a kind in a graph, as a test expects it.
//
//   EXPECT_EQ(only_layer<GeluSpec>(graph).form, GeluForm::exact);
#pragma once

#include <gtest/gtest.h>

#include <variant>

#include "model/graph.h"

namespace ddp {

// Fails the test if there is none, or more than one.
template <class Layer>
const Layer& only_layer(const Graph& graph) {
  const Layer* found = nullptr;
  for (const auto& layer : graph.layers()) {
    if (const auto* each = std::get_if<Layer>(&layer.kind)) {
      EXPECT_EQ(found, nullptr);
      found = each;
    }
  }
  EXPECT_NE(found, nullptr);
  return *found;
}

}  // namespace ddp
