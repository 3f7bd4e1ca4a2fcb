// Names that the examples in the headers of job use.
#pragma once

namespace ddp::job_examples {

extern char** argv;

}  // namespace ddp::job_examples
