#include "comm/gpu_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "comm/transport/self.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Selects a module for the duration of a test.
class NamedModule {
 public:
  explicit NamedModule(const std::string& path) { setenv("DDP_CUDA_MODULE", path.c_str(), 1); }
  NamedModule(const NamedModule&) = delete;
  NamedModule& operator=(const NamedModule&) = delete;
  ~NamedModule() { unsetenv("DDP_CUDA_MODULE"); }
};

std::string refusal_of(const std::string& path) {
  const NamedModule named(path);
  return error_text(ExitCode::preflight, [] { open_gpu_module(); });
}

// The output and exit code of a copy of the probe at `path`.
struct Answer {
  std::string text;
  int code = 0;
};
Answer probe_at(const fs::path& path, const std::string& driver_folder = DDP_TEST_DRIVER_FOLDER) {
  fs::create_directories(path.parent_path());
  fs::copy_file(DDP_TEST_PROBE, path);
  FILE* const output = popen(("LD_LIBRARY_PATH=" + driver_folder + " " + path.string()).c_str(), "r");
  if (output == nullptr) throw std::runtime_error("cannot run the probe");
  Answer answer;
  for (int c = std::fgetc(output); c != EOF; c = std::fgetc(output)) answer.text += static_cast<char>(c);
  answer.code = WEXITSTATUS(pclose(output));
  return answer;
}

TEST(GpuModule, IsOpenedByItsName) {
  const NamedModule named(DDP_TEST_MODULE);
  const std::shared_ptr<GpuModule> module = open_gpu_module();
  EXPECT_EQ(module->versions(), "a stand-in");
  ASSERT_EQ(module->visible().size(), 1U);
  EXPECT_EQ(module->visible()[0].name, "stand-in GPU");
}

TEST(GpuModule, ItsErrorsAreCaughtHere) {
  const NamedModule named(DDP_TEST_MODULE);
  const std::shared_ptr<GpuModule> module = open_gpu_module();
  EXPECT_EQ(error_text(ExitCode::out_of_memory, [&] { module->make_backend({.ordinal = 3}); }),
            "thrown by the module for GPU 3");
}

TEST(GpuModule, WorksOnWhatTheProgramHasMade) {
  const auto self = make_self_communicator();
  const auto backend = make_cpu_backend();
  std::unique_ptr<DeviceCommunicator> sums;
  {
    // Objects created by a module keep it loaded.
    const NamedModule named(DDP_TEST_MODULE);
    sums = open_gpu_module()->make_nccl_communicator(*self, backend->device());
  }
  EXPECT_EQ(sums->description(), "MPI through the host");
}

TEST(GpuModule, IsFoundBesideTheProgram) {
  const TemporaryFolder folder;
  fs::copy_file(DDP_TEST_MODULE, folder.path() / "libddp_cuda.so");
  const Answer answer = probe_at(folder.path() / "probe");
  EXPECT_EQ(answer.text, "a stand-in\n");
  EXPECT_EQ(answer.code, 0);
}

TEST(GpuModule, IsFoundWhereItIsInstalled) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "lib" / "ddp_train");
  fs::copy_file(DDP_TEST_MODULE, folder.path() / "lib" / "ddp_train" / "libddp_cuda.so");
  const Answer answer = probe_at(folder.path() / "bin" / "probe");
  EXPECT_EQ(answer.text, "a stand-in\n");
  EXPECT_EQ(answer.code, 0);
}

TEST(GpuModule, IsNotLoadedWithoutADriver) {
  const TemporaryFolder folder;
  // Not a library: an attempt to load it would give a different error.
  std::ofstream(folder.path() / "libddp_cuda.so") << "not a library";
  const bool has_driver = probe_at(folder.path() / "with", "").text.find("cannot be loaded: ") != std::string::npos;
  if (has_driver) GTEST_SKIP() << "this machine has an NVIDIA driver";
  const Answer answer = probe_at(folder.path() / "without", "");
  EXPECT_EQ(answer.code, 3);
  EXPECT_THAT(answer.text, AllOf(HasSubstr("there is no NVIDIA driver"), HasSubstr("--gpus all")));
}

TEST(GpuModule, ThatWasNotBuiltIsSaidToBeMissing) {
  const TemporaryFolder folder;
  const Answer answer = probe_at(folder.path() / "bin" / "probe");
  EXPECT_EQ(answer.code, 3);
  EXPECT_THAT(answer.text,
              AllOf(HasSubstr("has no GPU module"), HasSubstr(folder.path() / "bin" / "libddp_cuda.so"),
                    HasSubstr(folder.path() / "lib" / "ddp_train" / "libddp_cuda.so"), HasSubstr("DDP_CUDA_MODULE")));
}

TEST(GpuModule, ThatIsNamedAndMissing) {
  EXPECT_THAT(refusal_of("/no/such/module.so"),
              AllOf(HasSubstr("/no/such/module.so does not exist"), HasSubstr("DDP_CUDA_MODULE")));
}

TEST(GpuModule, OfAnotherVersion) {
  EXPECT_THAT(
      refusal_of(DDP_TEST_OTHER_VERSION),
      AllOf(HasSubstr(DDP_TEST_OTHER_VERSION), HasSubstr("a different version than this program, " DDP_VERSION)));
}

TEST(GpuModule, WithoutAnEntry) {
  EXPECT_THAT(refusal_of(DDP_TEST_EMPTY), AllOf(HasSubstr(DDP_TEST_EMPTY), HasSubstr("ddp_open_gpu_module")));
}

TEST(GpuModule, ThatLacksWhatItNeeds) {
  EXPECT_THAT(refusal_of(DDP_TEST_UNLOADABLE), AllOf(HasSubstr(DDP_TEST_UNLOADABLE), HasSubstr("cannot be loaded"),
                                                     HasSubstr("ddp_needed_and_nowhere")));
}

TEST(GpuModule, ThatIsNoLibrary) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "libddp_cuda.so";
  std::ofstream(path) << "not a library";
  EXPECT_THAT(refusal_of(path), AllOf(HasSubstr(path.string()), HasSubstr("cannot be loaded")));
}

}  // namespace
}  // namespace ddp
