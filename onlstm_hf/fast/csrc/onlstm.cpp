// The ordered-neurons recurrence of one layer on a CPU, called by `fast/onlstm/native.py`. The equations and the order
// of the gates' columns are in `models/modeling_onlstm.py`.
//
// One parallel region covers the whole sequence. The recurrent weight is packed once into vectors of LANES output
// columns, each a stream over the summed dimension. Every part of the work has its own columns at every step. A step's
// product is computed in register tiles, and the forward pass applies the pointwise equations to each tile while it is
// in registers. This file is compiled once for each instruction set, with the same names.

#include <omp.h>

#include "native_kernels.h"

extern "C" {

// The fields of the structures are those of the named tuples in `fast/onlstm/contract.py`. The sequences (input_gates,
// outputs and their gradients) are float32 or bfloat16, all others float32.
struct Sizes {
    int64_t length, batch_size, num_chunks, chunk_size;
    int32_t num_threads, sequence_is_bfloat16, product_is_bfloat16;
    float recurrent_scale;
};

// The masks may be null. The backward pass has only the fields that the operator keeps.
struct Inputs {
    const void* input_gates;         // [T, B, G]
    const float* recurrent_weight;   // [G, H]
    const float* hidden;             // [B, H]
    const float* cell;               // [B, H]
    const uint8_t* mask;             // [T, B]
    const uint8_t* recurrent_mask;   // [G, H]
};

// Without a backward pass, cells, softmaxes and activations are null.
struct Trace {
    void* outputs;                   // [T, B, H]
    float* last_cell;                // [B, H]
    float* distances;                // [T, B, 2]: mean master input gate, mean master forget gate
    float* cells;                    // [T, B, H]: before each step
    float* softmaxes;                // [T, B, 2, C]
    float* activations;              // [T, B, 4, H]
};

struct Gradients {
    void* input_gates;               // [T, B, G]
    float* hidden;                   // [B, H]
    float* cell;                     // [B, H]
};

struct Forward {
    Inputs inputs;
    Trace trace;
};

// The gradients of the trace may be null, and only those of the three results are read.
struct Backward {
    Trace grad_trace, trace;
    Inputs inputs;
    Gradients gradients;
};

}  // extern "C"

namespace {

thread_local Workspace workspace;

// Computes softmax and cumulative softmax of one row of master gates; returns the mean of the cumulative softmax.
template <class Expand>
double cumulative_softmax(float* logits, int64_t num_chunks, Expand expand) {
    float largest = logits[0];
    for (int64_t c = 1; c < num_chunks; c++) largest = logits[c] > largest ? logits[c] : largest;
    double total = 0;
    for (int64_t c = 0; c < num_chunks; c += LANES) {
        const int64_t count = std::min<int64_t>(LANES, num_chunks - c);
        store(logits + c, exponential(load(logits + c, count) - largest), count);
    }
    for (int64_t c = 0; c < num_chunks; c++) total += logits[c];
    const float normalizer = static_cast<float>(1 / total);
    double cumulative = 0, sum = 0;
    for (int64_t c = 0; c < num_chunks; c++) {
        logits[c] *= normalizer;
        cumulative += logits[c];
        sum += cumulative;
        expand(c, static_cast<float>(cumulative));
    }
    return sum / num_chunks;
}

template <class Sequence, class Product>
void run_forward(const Sizes& sizes, const Forward& arguments) {
    const Inputs& in = arguments.inputs;
    const Trace& trace = arguments.trace;
    constexpr int PAIR = Operand<Product>::PAIR;
    const int64_t T = sizes.length, B = sizes.batch_size, C = sizes.num_chunks, K = sizes.chunk_size;
    const int64_t H = C * K, G = 2 * C + 4 * H;
    const int64_t padded = round_up(H, LANES), stride = round_up(H, PAIR), stream_size = stride * LANES;
    const int64_t master_streams = (2 * C + LANES - 1) / LANES, unit_blocks = padded / LANES;
    const auto* input_gates = static_cast<const Sequence*>(in.input_gates);
    auto* outputs = static_cast<Sequence*>(trace.outputs);

    const Weight weight{in.recurrent_weight, in.recurrent_mask, sizes.recurrent_scale};
    workspace.restart();
    // Largest first, here and in the backward pass, so that both reuse the same memory.
    auto* unit_weight = workspace.take<Product>(unit_blocks * 4 * stream_size);
    auto* master_weight = workspace.take<Product>(master_streams * stream_size);
    auto* hiddens = workspace.take<Product>(2 * B * stride);
    auto* carried = in.mask ? workspace.take<float>(B * padded) : nullptr;  // h_t before rounding
    auto* cell = workspace.take<float>(B * padded);
    auto* logits = workspace.take<float>(B * 2 * C);
    auto* master_input = workspace.take<float>(B * padded);
    auto* master_forget = workspace.take<float>(B * padded);

    const int num_parts = sizes.num_threads;
    Team team(num_parts);
#pragma omp parallel num_threads(num_parts)
    {
        Team::Member member(team, omp_get_thread_num());
        Vector sums[MAX_ROWS * MAX_STREAMS];
        const Product* streams[MAX_STREAMS];

        member.run([&](Part part) {
            const Range my_streams = part.of(master_streams);
            const Range my_blocks = part.of(unit_blocks);
            const Range my_rows = part.of(B);
            for (int64_t s = my_streams.begin; s < my_streams.end; s++)
                pack_rows(weight, H, s * LANES, std::min<int64_t>(LANES, 2 * C - s * LANES),
                          master_weight + s * stream_size);
            for (int64_t block = my_blocks.begin; block < my_blocks.end; block++)
                for (int64_t gate = 0; gate < 4; gate++)
                    pack_rows(weight, H, 2 * C + gate * H + block * LANES,
                              std::min<int64_t>(LANES, H - block * LANES),
                              unit_weight + (block * 4 + gate) * stream_size);
            for (int64_t b = my_rows.begin; b < my_rows.end; b++) {
                for (int64_t u = 0; u < padded; u++) cell[b * padded + u] = u < H ? in.cell[b * H + u] : 0.0f;
                for (int64_t k = 0; k < stride; k++) {
                    hiddens[b * stride + k] = from_float<Product>(k < H ? in.hidden[b * H + k] : 0.0f);
                    hiddens[(B + b) * stride + k] = from_float<Product>(0.0f);
                }
                for (int64_t u = 0; carried && u < padded; u++)
                    carried[b * padded + u] = u < H ? in.hidden[b * H + u] : 0;
            }
        });

        for (int64_t t = 0; t < T; t++) {
            const Product* previous = hiddens + (t % 2) * B * stride;
            Product* next = hiddens + (1 - t % 2) * B * stride;
            const Sequence* inputs = input_gates + t * B * G;

            member.run([&](Part part) {
                const Range my_streams = part.of(master_streams);
                for (int64_t s = my_streams.begin; s < my_streams.end; s += MAX_STREAMS) {
                    const int count = static_cast<int>(std::min<int64_t>(MAX_STREAMS, my_streams.end - s));
                    for (int i = 0; i < count; i++) streams[i] = master_weight + (s + i) * stream_size;
                    for_row_tiles(B, [&](int64_t first, int rows) {
                        std::fill_n(sums, rows * count, Vector{});
                        multiply(rows, count, previous + first * stride, stride, streams, stride, sums);
                        for (int row = 0; row < rows; row++)
                            for (int i = 0; i < count; i++) {
                                const int64_t column = (s + i) * LANES, b = first + row;
                                const int64_t lanes = std::min<int64_t>(LANES, 2 * C - column);
                                const Vector sum = sums[row * count + i] + load(inputs + b * G + column, lanes);
                                store(logits + b * 2 * C + column, sum, lanes);
                            }
                    });
                }
            });

            member.run([&](Part part) {
                const Range my_rows = part.of(B);
                for (int64_t b = my_rows.begin; b < my_rows.end; b++) {
                    float* row = logits + b * 2 * C;
                    float* distances = trace.distances + (t * B + b) * 2;
                    distances[0] = static_cast<float>(1 - cumulative_softmax(row, C, [&](int64_t c, float value) {
                        std::fill_n(master_input + b * padded + c * K, K, 1 - value);
                    }));
                    distances[1] = static_cast<float>(cumulative_softmax(row + C, C, [&](int64_t c, float value) {
                        std::fill_n(master_forget + b * padded + c * K, K, value);
                    }));
                    if (trace.softmaxes)
                        std::memcpy(trace.softmaxes + (t * B + b) * 2 * C, row, 2 * C * sizeof(float));
                }
            });

            member.run([&](Part part) {
                const Range my_blocks = part.of(unit_blocks);
                for (int64_t block = my_blocks.begin; block < my_blocks.end; block++) {
                    const int64_t unit = block * LANES, lanes = std::min<int64_t>(LANES, H - unit);
                    for (int gate = 0; gate < 4; gate++) streams[gate] = unit_weight + (block * 4 + gate) * stream_size;
                    for_row_tiles(B, [&](int64_t first, int rows) {
                        std::fill_n(sums, rows * 4, Vector{});
                        // Prefetches each row, as the CPU would not fetch these cache lines in time.
                        for (int row = 0; row < rows; row++)
                            for (int gate = 0; gate < 4; gate++)
                                fetch(inputs + (first + row) * G + 2 * C + gate * H + unit, lanes);
                        multiply(rows, 4, previous + first * stride, stride, streams, stride, sums);
                        for (int row = 0; row < rows; row++) {
                            const int64_t b = first + row, step_row = t * B + b;
                            const Sequence* gates = inputs + b * G + 2 * C + unit;
                            const Vector candidate = hyperbolic_tangent(sums[row * 4] + load(gates, lanes));
                            const Vector input_gate = sigmoid(sums[row * 4 + 1] + load(gates + H, lanes));
                            const Vector forget_gate = sigmoid(sums[row * 4 + 2] + load(gates + 2 * H, lanes));
                            const Vector output_gate = sigmoid(sums[row * 4 + 3] + load(gates + 3 * H, lanes));
                            const Vector mi = load(master_input + b * padded + unit);
                            const Vector mf = load(master_forget + b * padded + unit);
                            const Vector overlap = mi * mf;
                            const Vector before = load(cell + b * padded + unit);
                            Vector after = (forget_gate * overlap + (mf - overlap)) * before +
                                           (input_gate * overlap + (mi - overlap)) * candidate;
                            Vector hidden = output_gate * hyperbolic_tangent(after);
                            if (in.mask) {
                                if (!in.mask[step_row]) {
                                    after = before;
                                    hidden = load(carried + b * padded + unit);
                                }
                                store(carried + b * padded + unit, hidden);
                            }
                            store(cell + b * padded + unit, after);
                            store(next + b * stride + unit, hidden, lanes);
                            store(outputs + step_row * H + unit, hidden, lanes);
                            if (trace.activations) {
                                float* saved = trace.activations + step_row * 4 * H + unit;
                                store(saved, candidate, lanes);
                                store(saved + H, input_gate, lanes);
                                store(saved + 2 * H, forget_gate, lanes);
                                store(saved + 3 * H, output_gate, lanes);
                                store(trace.cells + step_row * H + unit, before, lanes);
                            }
                        }
                    });
                }
            });
        }
        member.run([&](Part part) {
            const Range my_rows = part.of(B);
            for (int64_t b = my_rows.begin; b < my_rows.end; b++)
                std::memcpy(trace.last_cell + b * H, cell + b * padded, H * sizeof(float));
        });
    }
}

template <class Sequence, class Product>
void run_backward(const Sizes& sizes, const Backward& arguments) {
    const Inputs& in = arguments.inputs;
    const Trace &trace = arguments.trace, &grad_trace = arguments.grad_trace;
    const Gradients& gradients = arguments.gradients;
    constexpr int PAIR = Operand<Product>::PAIR;
    const int64_t T = sizes.length, B = sizes.batch_size, C = sizes.num_chunks, K = sizes.chunk_size;
    const int64_t H = C * K, G = 2 * C + 4 * H;
    const int64_t stride = round_up(G, PAIR), stream_size = stride * LANES, num_streams = (H + LANES - 1) / LANES;
    const auto* grad_outputs = static_cast<const Sequence*>(grad_trace.outputs);
    auto* grad_gates = static_cast<Sequence*>(gradients.input_gates);

    const Weight weight{in.recurrent_weight, in.recurrent_mask, sizes.recurrent_scale};
    workspace.restart();
    auto* packed = workspace.take<Product>(num_streams * stream_size);
    auto* step_gates = workspace.take<Product>(B * stride);
    auto* grad_masters = workspace.take<float>(B * 2 * C);
    auto* scratch = workspace.take<float>(sizes.num_threads * 4 * (H + LANES));

    const int num_parts = sizes.num_threads;
    // The pointwise part is divided by rows, and by runs of chunks if there are few rows.
    const int64_t runs = std::min<int64_t>(C, (2 * num_parts + B - 1) / B);
    Team team(num_parts);
#pragma omp parallel num_threads(num_parts)
    {
        Team::Member member(team, omp_get_thread_num());
        float* mi_units = scratch + omp_get_thread_num() * 4 * (H + LANES);
        float* mf_units = mi_units + H + LANES;
        float* grad_mi_units = mf_units + H + LANES;
        float* grad_mf_units = grad_mi_units + H + LANES;
        Vector sums[MAX_ROWS * MAX_STREAMS];
        const Product* streams[MAX_STREAMS];

        member.run([&](Part part) {
            const Range my_streams = part.of(num_streams);
            const Range my_rows = part.of(B);
            for (int64_t s = my_streams.begin; s < my_streams.end; s++)
                pack_columns(weight, G, H, s * LANES, std::min<int64_t>(LANES, H - s * LANES),
                             packed + s * stream_size);
            for (int64_t b = my_rows.begin; b < my_rows.end; b++) {
                for (int64_t k = G; k < stride; k++) step_gates[b * stride + k] = from_float<Product>(0.0f);
                for (int64_t u = 0; u < H; u++) {
                    const int64_t last = ((T - 1) * B + b) * H + u;
                    gradients.hidden[b * H + u] = grad_outputs ? to_float(grad_outputs[last]) : 0.0f;
                    gradients.cell[b * H + u] = grad_trace.last_cell ? grad_trace.last_cell[b * H + u] : 0.0f;
                }
            }
        });

        for (int64_t t = T - 1; t >= 0; t--) {
            member.run([&](Part part) {
                const Range my_items = part.of(B * runs);
                for (int64_t item = my_items.begin; item < my_items.end; item++) {
                    const int64_t b = item / runs, step_row = t * B + b;
                    const Range chunks = Part{static_cast<int>(item % runs), static_cast<int>(runs)}.of(C);
                    const int64_t first_unit = chunks.begin * K, units = (chunks.end - chunks.begin) * K;
                    const bool real = !in.mask || in.mask[step_row];
                    float* grad_row = grad_masters + b * 2 * C;
                    const float extra_mi = grad_trace.distances ? grad_trace.distances[step_row * 2] / C : 0.0f;
                    const float extra_mf = grad_trace.distances ? grad_trace.distances[step_row * 2 + 1] / C : 0.0f;
                    Sequence* gates = grad_gates + step_row * G + 2 * C + first_unit;
                    Product* product_gates = step_gates + b * stride + 2 * C + first_unit;
                    if (!real) {
                        for (int64_t c = chunks.begin; c < chunks.end; c++) {
                            grad_row[c] = extra_mi;
                            grad_row[C + c] = extra_mf;
                        }
                        for (int gate = 0; gate < 4; gate++) {
                            std::fill_n(gates + gate * H, units, from_float<Sequence>(0.0f));
                            std::fill_n(product_gates + gate * H, units, from_float<Product>(0.0f));
                        }
                        continue;
                    }

                    const float* softmaxes = trace.softmaxes + step_row * 2 * C;
                    double cumulative_input = 0, cumulative_forget = 0;
                    for (int64_t c = 0; c < chunks.end; c++) {
                        cumulative_input += softmaxes[c];
                        cumulative_forget += softmaxes[C + c];
                        if (c < chunks.begin) continue;
                        const int64_t unit = (c - chunks.begin) * K;
                        std::fill_n(mi_units + unit, K, 1 - static_cast<float>(cumulative_input));
                        std::fill_n(mf_units + unit, K, static_cast<float>(cumulative_forget));
                    }

                    const float* activations = trace.activations + step_row * 4 * H + first_unit;
                    const float* before = trace.cells + step_row * H + first_unit;
                    const float* after =
                        (t + 1 < T ? trace.cells + (step_row + B) * H : trace.last_cell + b * H) + first_unit;
                    float* grad_hidden = gradients.hidden + b * H + first_unit;
                    float* grad_cell = gradients.cell + b * H + first_unit;
                    for (int64_t u = 0; u < units; u += LANES) {
                        const int64_t lanes = std::min<int64_t>(LANES, units - u);
                        const Vector candidate = load(activations + u, lanes);
                        const Vector input_gate = load(activations + H + u, lanes);
                        const Vector forget_gate = load(activations + 2 * H + u, lanes);
                        const Vector output_gate = load(activations + 3 * H + u, lanes);
                        const Vector previous = load(before + u, lanes);
                        const Vector tanh_cell = hyperbolic_tangent(load(after + u, lanes));
                        const Vector mi = load(mi_units + u), mf = load(mf_units + u);
                        const Vector overlap = mi * mf;
                        const Vector from_hidden = load(grad_hidden + u, lanes);
                        const Vector from_cell = load(grad_cell + u, lanes) +
                                                 from_hidden * output_gate * (1.0f - tanh_cell * tanh_cell);
                        const Vector grad_input = from_cell * candidate, grad_forget = from_cell * previous;
                        const Vector grads[4] = {
                            from_cell * (input_gate * overlap + (mi - overlap)) * (1.0f - candidate * candidate),
                            grad_input * overlap * input_gate * (1.0f - input_gate),
                            grad_forget * overlap * forget_gate * (1.0f - forget_gate),
                            from_hidden * tanh_cell * output_gate * (1.0f - output_gate)};
                        for (int gate = 0; gate < 4; gate++) {
                            store(gates + gate * H + u, grads[gate], lanes);
                            store(product_gates + gate * H + u, grads[gate], lanes);
                        }
                        const Vector slack = grad_input * (input_gate - 1.0f) + grad_forget * (forget_gate - 1.0f);
                        store(grad_mi_units + u, grad_input + mf * slack);
                        store(grad_mf_units + u, grad_forget + mi * slack);
                        store(grad_cell + u, from_cell * (forget_gate * overlap + (mf - overlap)), lanes);
                    }
                    for (int64_t c = chunks.begin; c < chunks.end; c++) {
                        const int64_t unit = (c - chunks.begin) * K;
                        float grad_mi = extra_mi, grad_mf = extra_mf;
                        for (int64_t u = unit; u < unit + K; u++) {
                            grad_mi += grad_mi_units[u];
                            grad_mf += grad_mf_units[u];
                        }
                        grad_row[c] = grad_mi;
                        grad_row[C + c] = grad_mf;
                    }
                }
            });

            member.run([&](Part part) {
                const Range my_rows = part.of(B);
                for (int64_t b = my_rows.begin; b < my_rows.end; b++) {
                    const int64_t step_row = t * B + b;
                    for (int master = 0; master < 2; master++) {
                        // The master input gate is 1 - cumsum(softmax), the master forget gate cumsum(softmax).
                        const double sign = master == 0 ? -1 : 1;
                        float* grads = grad_masters + (b * 2 + master) * C;
                        const float* softmax = trace.softmaxes + (step_row * 2 + master) * C;
                        double reverse = 0, dot = 0;
                        for (int64_t c = C - 1; c >= 0; c--) {
                            reverse += sign * grads[c];
                            dot += reverse * softmax[c];
                            grads[c] = static_cast<float>(reverse);
                        }
                        for (int64_t c = 0; c < C; c++) {
                            const float grad = softmax[c] * (grads[c] - static_cast<float>(dot));
                            grad_gates[step_row * G + master * C + c] = from_float<Sequence>(grad);
                            step_gates[b * stride + master * C + c] = from_float<Product>(grad);
                        }
                    }
                }
            });

            member.run([&](Part part) {
                const Range my_streams = part.of(num_streams);
                for (int64_t s = my_streams.begin; s < my_streams.end; s += MAX_STREAMS) {
                    const int count = static_cast<int>(std::min<int64_t>(MAX_STREAMS, my_streams.end - s));
                    for (int64_t k = 0; k < stride; k += BLOCK) {
                        const int64_t size = std::min(BLOCK, stride - k);
                        for (int i = 0; i < count; i++) streams[i] = packed + (s + i) * stream_size + k * LANES;
                        for_row_tiles(B, [&](int64_t first, int rows) {
                            for (int row = 0; row < rows; row++)
                                for (int i = 0; i < count; i++) {
                                    const int64_t b = first + row, unit = (s + i) * LANES;
                                    const int64_t lanes = std::min<int64_t>(LANES, H - unit);
                                    Vector& sum = sums[row * count + i];
                                    const bool carries = k > 0 || (in.mask && !in.mask[t * B + b]);
                                    sum = carries ? load(gradients.hidden + b * H + unit, lanes) : Vector{};
                                    if (k == 0 && t > 0 && grad_outputs)
                                        sum += load(grad_outputs + ((t - 1) * B + b) * H + unit, lanes);
                                }
                            multiply(rows, count, step_gates + first * stride + k, stride, streams, size, sums);
                            for (int row = 0; row < rows; row++)
                                for (int i = 0; i < count; i++) {
                                    const int64_t unit = (s + i) * LANES;
                                    store(gradients.hidden + (first + row) * H + unit, sums[row * count + i],
                                          std::min<int64_t>(LANES, H - unit));
                                }
                        });
                    }
                }
            });
        }
    }
}

}  // namespace

extern "C" {

// Returns the version of the structures above, or 0 if this CPU lacks the instructions of this library.
int onlstm_interface() { return is_supported() ? 4 : 0; }

// Both return 0, or 1 when memory runs out.
int onlstm_forward(const Sizes* sizes, const Forward* arguments) {
    try {
        if (sizes->sequence_is_bfloat16)
            (sizes->product_is_bfloat16 ? run_forward<BFloat16, BFloat16> : run_forward<BFloat16, float>)(*sizes,
                                                                                                         *arguments);
        else
            (sizes->product_is_bfloat16 ? run_forward<float, BFloat16> : run_forward<float, float>)(*sizes, *arguments);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

int onlstm_backward(const Sizes* sizes, const Backward* arguments) {
    try {
        if (sizes->sequence_is_bfloat16)
            (sizes->product_is_bfloat16 ? run_backward<BFloat16, BFloat16> : run_backward<BFloat16, float>)(
                *sizes, *arguments);
        else
            (sizes->product_is_bfloat16 ? run_backward<float, BFloat16> : run_backward<float, float>)(*sizes,
                                                                                                      *arguments);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

}  // extern "C"
