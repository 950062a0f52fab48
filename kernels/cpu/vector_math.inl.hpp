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

/// gate / (1 + e^-gate) * up.
OUTRIDER_INLINE Vec swiglu(Vec gate, Vec up) {
  return gate / (broadcast(1.0f) + exp(zero() - gate)) * up;
}

/// 2^x for x <= 0, relative error below 2e-7 (polynomial of least relative error on [-1/2, 1/2]);
/// 2^-125 below that; NaN stays NaN.
OUTRIDER_INLINE Vec exp2_of_negative(Vec x) {
  const Vec round = broadcast(0x1.8p23f);
  x = max(broadcast(-125.0f), x);
  const Vec t = x + round;
  const Vec r = x - (t - round);
  Vec q = broadcast(0x1.5bba14p-10f);
  q = fma(q, r, broadcast(0x1.3cea88p-7f));
  q = fma(q, r, broadcast(0x1.c6b752p-5f));
  q = fma(q, r, broadcast(0x1.ebf9bcp-3f));
  q = fma(q, r, broadcast(0x1.62e42ap-1f));
  q = fma(q, r, broadcast(1.0f));
  // The low bits of t are the integer; the others leave at the top.
  return float_of(bits_of(q) + shift_left<23>(bits_of(t)));
}

}  // namespace outrider::kernels::OUTRIDER_ISA
