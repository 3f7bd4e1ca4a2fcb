// Which tensor of a file of weights becomes which tensor of a network, by their names. It knows nothing of the kind of file.
//
//   const WeightMatch match = match_weights(in_file, in_network, {"fc.weight", "fc.bias"});
//   in_file[match.sources[0]];   // for in_network[0]
//   match.note;                  // "without 'module.'", as nn.DataParallel puts it before all names
//
// Programs that save a wrapped or nested module write names with more in front: "module.", "_orig_mod.", "model.", "net.model.".
// If the names do not agree as they are, one prefix before all names of the network's tensors is left out, whatever it is, on
// either side; then the names of wrappers anywhere in them, as torch.compile, DataParallel and FSDP put them around parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace ddp {

struct FileTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string type = "F32";
  bool real = true;  // of a type that is read
};

struct NetworkTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  bool classifier = false;  // of the last layer with weights
};

struct WeightMatch {
  std::vector<std::size_t> sources;  // for each tensor of the network, one of the file
  std::string note;                  // what was changed in names or passed over; empty: nothing
};

// Tensors of the file with a name in `passed_over`, and PyTorch's counters "...num_batches_tracked", are not read; nor are
// those without the prefix that is left out. Throws Error(checkpoint) for a tensor that is missing, unexpected, or of another
// shape or type, with the first names of both sides.
WeightMatch match_weights(std::span<const FileTensor> in_file, std::span<const NetworkTensor> in_network,
                          const std::set<std::string>& passed_over);

}  // namespace ddp
