// The revision of the defaults: what a run does where no option says it. A run keeps the revision that it began with, which
// its checkpoints store (TrainingState::defaults), so that a default can change its meaning without changing the bytes of
// runs that are resumed or evaluated. New runs have the latest.
//
//   bool by_use = trains_by_use(kLatestDefaults);   // for a resumed run, the revision in its checkpoint
#pragma once

namespace ddp {

// Revision of checkpoints that do not say it: versions before revisions were stored.
inline constexpr int kFirstDefaults = 0;
// Revision of new runs.
inline constexpr int kLatestDefaults = 2;

// Image folders: `valid` and `validation` evaluate like `val`, and .jfif and .jpe are JPEG files.
inline bool knows_all_folder_names(int defaults) { return defaults >= 1; }
// Image folders: BMP, GIF, TIFF, HEIC and AVIF files are images, too, and the EXIF orientation counts (--exif-orientation).
inline bool reads_all_pictures(int defaults) { return defaults >= 2; }
// Whether a batch normalisation over a single value of each channel is an error or avoided (train/inputs/single_values.h).
inline bool refuses_single_values(int defaults) { return defaults >= 1; }
// Whether batch normalisations whose parameters are all frozen keep their running statistics (--frozen-statistics).
inline bool keeps_frozen_statistics(int defaults) { return defaults >= 1; }

// Which tensors of an ONNX file are trained, and how they are called, follows from their kind and use, not from their names.
inline bool trains_by_use(int defaults) { return defaults >= 1; }

// Whether pictures of the network's size are read as they are, rather than cropped and enlarged like others, and
// evaluations decode whole pictures and resize them as Pillow does (data/images/preprocessing.h).
inline bool reads_pictures_exactly(int defaults) { return defaults >= 1; }

// Where hosts have different numbers of ranks, their gradients are summed within hosts first, instead of along one ring of all
// ranks: another order of additions.
inline bool sums_uneven_hosts_in_two_levels(int defaults) { return defaults >= 1; }

// Ranks that count parts of the gradient's norm send the sums of all their parts together, instead of those of each bucket.
inline bool sums_squares_by_rank(int defaults) { return defaults >= 1; }

}  // namespace ddp
