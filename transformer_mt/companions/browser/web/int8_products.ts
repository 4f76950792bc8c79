// The products of int8 matrices that Bergamot's engine imports, in AssemblyScript 0.28.20:
// asc int8_products.ts -o int8_products.wasm -O3 --enable simd --noAssert --runtime stub --importMemory --use abort=
//
// The engine has such functions, too (int8MultiplyAndAddBiasFallback and others), but they imitate an
// instruction of x86 that WebAssembly lacks, and saturate sums of two products at 16 bits. These extend int8 to
// 16 bits first, and add in 32.
//
// A (rows x width) are the inputs of a layer, B (width x cols) its weights. Both are multiplied by a scale,
// rounded to -127..127 and stored as int8, A by rows and B by columns. `width` is a multiple of 64, `cols` of 8.
// Zero points are not used: nothing is shifted, so biases stay as they are.

export function int8_prepare_a(a: usize, scale: f32, zero: f32, rows: u32, width: u32, out: usize): void {
  round(a, scale, rows * width, out);
}

export function int8_prepare_b(b: usize, scale: f32, zero: f32, width: u32, cols: u32, out: usize): void {
  for (let col: u32 = 0; col < cols; col++) {
    for (let i: u32 = 0; i < width; i++) {
      const value = nearest(load<f32>(b + 4 * (i * cols + col)) * scale);
      store<i8>(out++, <i8>min<f32>(127, max<f32>(-127, value)));
    }
  }
}

export function int8_prepare_b_from_transposed(
  b: usize, scale: f32, zero: f32, width: u32, cols: u32, out: usize,
): void {
  round(b, scale, width * cols, out);
}

export function int8_prepare_b_from_quantized_transposed(b: usize, width: u32, cols: u32, out: usize): void {
  memory.copy(out, b, width * cols);
}

export function int8_select_columns_of_b(
  b: usize, width: u32, cols: u32, chosen: usize, count: u32, out: usize,
): void {
  for (let i: u32 = 0; i < count; i++) {
    memory.copy(out + i * width, b + load<u32>(chosen + 4 * i) * width, width);
  }
}

export function int8_prepare_bias(
  b: usize, scaleA: f32, zeroA: f32, scaleB: f32, zeroB: f32, width: u32, cols: u32, bias: usize, out: usize,
): void {
  if (bias) memory.copy(out, bias, 4 * cols);
  else memory.fill(out, 0, 4 * cols);
}

export function int8_multiply_and_add_bias(
  a: usize, scaleA: f32, zeroA: f32, b: usize, scaleB: f32, zeroB: f32, bias: usize, multiplier: f32,
  rows: u32, width: u32, cols: u32, out: usize,
): void {
  const factor = f32x4.splat(multiplier / (scaleA * scaleB));
  for (let col: u32 = 0; col < cols; col += 4) {
    const added = v128.load(bias + 4 * col);
    let row: u32 = 0, to = out + 4 * col;
    for (; row + 2 <= rows; row += 2, to += 8 * cols) {
      twoRows(a + row * width, b + col * width, width, factor, added, to, to + 4 * cols);
    }
    if (row < rows) oneRow(a + row * width, b + col * width, width, factor, added, to);
  }
}

// Two rows of A times four columns of B: their eight sums, four lanes each, stay in registers.
function twoRows(a: usize, b: usize, width: u32, factor: v128, added: v128, out: usize, next: usize): void {
  let p0 = i32x4.splat(0), p1 = p0, p2 = p0, p3 = p0, q0 = p0, q1 = p0, q2 = p0, q3 = p0;
  for (const end = a + width; a < end; a += 8, b += 8) {
    const p = v128.load_ext<i8>(a), q = v128.load_ext<i8>(a + width);
    let w = v128.load_ext<i8>(b);
    p0 = i32x4.add(p0, i32x4.dot_i16x8_s(p, w));
    q0 = i32x4.add(q0, i32x4.dot_i16x8_s(q, w));
    w = v128.load_ext<i8>(b + width);
    p1 = i32x4.add(p1, i32x4.dot_i16x8_s(p, w));
    q1 = i32x4.add(q1, i32x4.dot_i16x8_s(q, w));
    w = v128.load_ext<i8>(b + 2 * width);
    p2 = i32x4.add(p2, i32x4.dot_i16x8_s(p, w));
    q2 = i32x4.add(q2, i32x4.dot_i16x8_s(q, w));
    w = v128.load_ext<i8>(b + 3 * width);
    p3 = i32x4.add(p3, i32x4.dot_i16x8_s(p, w));
    q3 = i32x4.add(q3, i32x4.dot_i16x8_s(q, w));
  }
  v128.store(out, f32x4.add(f32x4.mul(sums(p0, p1, p2, p3), factor), added));
  v128.store(next, f32x4.add(f32x4.mul(sums(q0, q1, q2, q3), factor), added));
}

function oneRow(a: usize, b: usize, width: u32, factor: v128, added: v128, out: usize): void {
  let p0 = i32x4.splat(0), p1 = p0, p2 = p0, p3 = p0;
  for (const end = a + width; a < end; a += 8, b += 8) {
    const p = v128.load_ext<i8>(a);
    p0 = i32x4.add(p0, i32x4.dot_i16x8_s(p, v128.load_ext<i8>(b)));
    p1 = i32x4.add(p1, i32x4.dot_i16x8_s(p, v128.load_ext<i8>(b + width)));
    p2 = i32x4.add(p2, i32x4.dot_i16x8_s(p, v128.load_ext<i8>(b + 2 * width)));
    p3 = i32x4.add(p3, i32x4.dot_i16x8_s(p, v128.load_ext<i8>(b + 3 * width)));
  }
  v128.store(out, f32x4.add(f32x4.mul(sums(p0, p1, p2, p3), factor), added));
}

// The sum of the lanes of each of four vectors.
// @ts-ignore: decorator
@inline
function sums(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = i32x4.add(v128.shuffle<i32>(a, b, 0, 4, 1, 5), v128.shuffle<i32>(a, b, 2, 6, 3, 7));
  const cd = i32x4.add(v128.shuffle<i32>(c, d, 0, 4, 1, 5), v128.shuffle<i32>(c, d, 2, 6, 3, 7));
  return f32x4.convert_i32x4_s(i32x4.add(v128.shuffle<i64>(ab, cd, 0, 2), v128.shuffle<i64>(ab, cd, 1, 3)));
}

function round(from: usize, scale: f32, count: u32, out: usize): void {
  const scales = f32x4.splat(scale), least = i16x8.splat(-127);
  for (const end = out + count; out < end; out += 16, from += 64) {
    const ab = i16x8.narrow_i32x4_s(scaledAndRounded(from, scales), scaledAndRounded(from + 16, scales));
    const cd = i16x8.narrow_i32x4_s(scaledAndRounded(from + 32, scales), scaledAndRounded(from + 48, scales));
    v128.store(out, i8x16.narrow_i16x8_s(i16x8.max_s(ab, least), i16x8.max_s(cd, least)));
  }
}

// @ts-ignore: decorator
@inline
function scaledAndRounded(from: usize, scale: v128): v128 {
  return i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(v128.load(from), scale)));
}
