// How gradients are summed over the ranks (comm/sums/reduce.h, comm/sums/shard_tree.h).
//
//   const Reduction reduction = Reduction::tree;
#pragma once

namespace ddp {

enum class Reduction { ring, tree, root };

}  // namespace ddp
