// The inputs of a run: data sets, the division of the global batch, the description of the network, and where its weights come
// from. All ranks have the same. Made from the job (train/inputs/job.h) and not changed after.
//
//   std::optional<ImportedModel> imported;   // of an ONNX file
//   const Inputs inputs = gather_inputs(session, job, imported);
//   inputs.batch.steps_per_epoch;
//   inputs.graph.parameters();
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/pipeline/progressive.h"
#include "job/mpi_session.h"
#include "model/graph.h"
#include "model/network.h"
#include "onnx/import.h"
#include "options/batch.h"
#include "train/inputs/fingerprint.h"
#include "train/inputs/image_sizes.h"
#include "train/inputs/job.h"
#include "train/inputs/preprocessing.h"
#include "train/inputs/run_data.h"

namespace ddp {

struct Inputs {
  RunData images;
  BatchPlan batch;
  // As it is trained: with what it synchronizes and divides among the ranks, and with the parameters that are frozen.
  Graph graph{Shape{}};
  PixelValues pixels;  // how the network reads them
  // The sizes of training images, and what is read and computed below the full size.
  ProgressiveSizes sizes;
  std::vector<SmallerImages> smaller;
  std::string onnx;       // on rank 0: the content of the model's ONNX file; empty for a built-in model
  std::string onnx_hash;  // its hash, on all ranks
  std::string split;      // on rank 0: FolderDivision::csv
  std::vector<std::string> file_constants;  // tensors of that file that the network uses and does not train
  // The inputs of the run besides its options: data, normalisation, network.
  Fingerprint fingerprint;

  // Augmented; and what evaluates.
  const Dataset& train() const { return *images.sets.train; }
  const Dataset& test() const { return *images.sets.test; }
};

// The inputs of this rank, before they are compared. `onnx`: the content of the model's file, or ""; `division`: of the
// images (train/inputs/run_data.h). What is imported goes to `imported`, since its weights are needed only until the first
// state of the run is made. Throws Error.
Inputs make_inputs(const Job& job, const std::string& onnx, const FolderDivision& division,
                   std::optional<ImportedModel>& imported);

// Collective: divide_folder() of rank 0; the texts for split.csv on rank 0 only.
FolderDivision agreed_division(const MpiSession& session, const Job& job);

// Collective. The same, with the file that rank 0 reads. Throws JointError(preflight) if the data differ between ranks.
Inputs gather_inputs(const MpiSession& session, const Job& job, std::optional<ImportedModel>& imported);

// The configuration of the whole network for the samples of a shard.
NetworkConfig network_config(const Job& job, const Inputs& inputs);

}  // namespace ddp
