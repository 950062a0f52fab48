#pragma once

#include "kernels/cpu/simd.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

/// e^x on 16 lanes, bit for bit base/fmath's exp_f32: change both or none.
OUTRIDER_INLINE Vec exp(Vec x) {
  const Vec round = broadcast(0x1.8p23f);
  x = min(broadcast(89.0f), max(broadcast(-104.0f), x));
  const Vec t = fma(x, broadcast(0x1.715476p+0f), round);
  const Vec n = t - round;
  Vec r = fma(n, broadcast(-0x1.62e430p-1f), x);
  r = fma(n, broadcast(0x1.05c610p-29f), r);
  Vec q = broadcast(0x1.6d113cp-10f);
  q = fma(q, r, broadcast(0x1.120ba2p-7f));
  q = fma(q, r, broadcast(0x1.55551ap-5f));
  q = fma(q, r, broadcast(0x1.5554dcp-3f));
  q = fma(q, r, broadcast(0.5f));
  q = fma(q, r, broadcast(1.0f));
  q = fma(q, r, broadcast(1.0f));
  const Ints exponent = bits_of(t) - bits_of(round);
  const Ints half = shift_right_signed<1>(exponent);
  const Ints bias = broadcast_int(127);
  return q * float_of(shift_left<23>(half + bias)) *
         float_of(shift_left<23>(exponent - half + bias));
}

}  // namespace outrider::kernels::OUTRIDER_ISA
