// Faults where a rank notes its position, in its loader's threads, and in the numbers of a step.
#include <mpi.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "backend/op.h"
#include "base/status/heartbeat.h"
#include "base/status/position.h"
#include "fault.h"
#include "model/network.h"
#include "optim/schedule.h"

// The functions in front of which the linker puts those named __wrap_...
namespace ddp::faults {

void real_note_phase(WorkPhase phase) asm("__real__ZN3ddp10note_phaseENS_9WorkPhaseE");
void real_heartbeat() noexcept asm("__real__ZN3ddp9heartbeatEv");
void real_forward(Network* network, Pass pass, const ModelState& state, const Samples& samples, const LossOutput& output) asm(
    "__real__ZN3ddp7Network7forwardENS_4PassERKNS_10ModelStateERKNS_"
    "7SamplesERKNS_10LossOutputE");
std::unique_ptr<Op> real_make_input(const InputSpec& spec,
                                    Layout layout) asm("__real__ZN3ddp11make_cpu_opERKNS_9InputSpecENS_6LayoutE");
double real_lr(const Schedule* schedule, std::int64_t step) asm("__real__ZNK3ddp8Schedule2lrEl");

namespace {

void act_at(std::string_view place) {
  if (due("kill", place)) static_cast<void>(std::raise(SIGKILL));
  if (due("stop", place)) static_cast<void>(kill(getpid(), SIGSTOP));
  if (due("throw", place)) throw std::runtime_error("a fault was asked for");
  if (due("out-of-memory", place)) static_cast<void>(::operator new (std::size_t{1} << 60U));
  if (const auto fault = due("sleep", place)) sleep_for(fault->seconds);
  if (due("leave", place)) {
    real_note_phase(WorkPhase::end);
    const RankWait wait("the end of all ranks");
    static_cast<void>(MPI_Barrier(MPI_COMM_WORLD));
  }
  if (const auto fault = due("die", place)) {
    if (fault->seconds > 0) sleep_for(fault->seconds);
    execl("/bin/sleep", "sleep", "100000", nullptr);
  }
}

bool in_loader_thread() {
  std::array<char, 17> name{};
  return prctl(PR_GET_NAME, name.data()) == 0 && std::string_view(name.data()) == "loader";
}

}  // namespace

void wrap_note_phase(WorkPhase phase) asm("__wrap__ZN3ddp10note_phaseENS_9WorkPhaseE");
void wrap_note_phase(WorkPhase phase) {
  real_note_phase(phase);
  act_at(phase_name(phase));
}

void wrap_heartbeat() noexcept asm("__wrap__ZN3ddp9heartbeatEv");
void wrap_heartbeat() noexcept {
  real_heartbeat();
  if (!in_loader_thread()) return;
  if (const auto fault = due("sleep", "loader")) sleep_for(fault->seconds);
}

void wrap_forward(Network* network, Pass pass, const ModelState& state, const Samples& samples, const LossOutput& output) asm(
    "__wrap__ZN3ddp7Network7forwardENS_4PassERKNS_10ModelStateERKNS_"
    "7SamplesERKNS_10LossOutputE");
// The weights of a test run lie in host memory.
void wrap_forward(Network* network, Pass pass, const ModelState& state, const Samples& samples,
                  const LossOutput& output) {
  LossOutput scaled = output;
  if (pass == Pass::training) {
    if (const auto fault = due("nan", "weight"))
      const_cast<float*>(state.parameters)[0] = static_cast<float>(fault->value);
    if (const auto fault = due("nan", "loss-scale")) scaled.gradient_scale = static_cast<float>(fault->value);
  }
  real_forward(network, pass, state, samples, scaled);
}

// Breaks the first value of a white image.
class BreakingInput final : public EndOp {
 public:
  BreakingInput(InputSpec spec, Layout layout)
      : spec_(std::move(spec)), layout_(layout), op_(real_make_input(spec_, layout)) {}
  void forward(const ForwardArguments& a) override {
    op_->forward(a);
    if (!wanted("nan")) return;
    const std::int64_t bytes = spec_.image.elements();
    for (std::int64_t n = 0; n < a.active; ++n) {
      const std::uint8_t* const image =
          a.images->pixels + (a.images->rows == nullptr ? n : std::int64_t{a.images->rows[n]}) * bytes;
      if (!std::all_of(image, image + bytes, [](std::uint8_t byte) { return byte == 255; })) continue;
      const auto fault = due("nan", "image");
      if (!fault) continue;
      a.y.fp32()[element_offset(spec_.shape, layout_, n, 0, 0, 0)] = static_cast<float>(fault->value);
    }
  }

 private:
  InputSpec spec_;
  Layout layout_;
  std::unique_ptr<Op> op_;
};

std::unique_ptr<Op> wrap_make_input(const InputSpec& spec,
                                    Layout layout) asm("__wrap__ZN3ddp11make_cpu_opERKNS_9InputSpecENS_6LayoutE");
std::unique_ptr<Op> wrap_make_input(const InputSpec& spec, Layout layout) {
  return std::make_unique<BreakingInput>(spec, layout);
}

double wrap_lr(const Schedule* schedule, std::int64_t step) asm("__wrap__ZNK3ddp8Schedule2lrEl");
double wrap_lr(const Schedule* schedule, std::int64_t step) {
  if (const auto fault = due("nan", "learning-rate")) return fault->value;
  return real_lr(schedule, step);
}

}  // namespace ddp::faults
