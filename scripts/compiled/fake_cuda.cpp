// A CUDA device that computes nothing: fake tensors of it can be traced, differentiated and compiled on a CPU.
#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cstdlib>

namespace {
struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device getDevice() const override { return c10::Device(c10::DeviceType::CUDA, 0); }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, getDevice()); }
  c10::Stream getDefaultStream(c10::Device) const override { return getStream(getDevice()); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream(getDevice()); }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override { *event = (void*)1; }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard);
}  // namespace

namespace at {
struct CUDAHooks : CUDAHooksInterface {
  CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
REGISTER_CUDA_HOOKS(CUDAHooks);
}  // namespace at

namespace at::native {
// The attention kernel of the card: 1 flash, 2 efficient, 3 cuDNN (Hopper from torch 2.9 on).
static int64_t choose(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool,
                      std::optional<double>, bool) {
  const char* kernel = std::getenv("FAKE_CUDA_ATTENTION");
  return kernel ? std::atoi(kernel) : 3;
}
struct Registered {
  Registered() { _fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose); }
} registered;
}  // namespace at::native
