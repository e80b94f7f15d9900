// The recurrence of one layer of the PRPN's reading network on a CPU, called by `fast/prpn/native.py`. The equations,
// the layout of a tape and the order of the gates' columns are in `models/modeling_prpn.py`.
//
// One parallel region covers the whole sequence. In the products with the two weights, every part of the work has its
// own columns. In the rest of a step it has its own rows, so that a row's part of the tape is still in the cache when
// it is read again. Slots with zero attention are skipped.

#include <cmath>

#include <omp.h>

#include "native_kernels.h"

extern "C" {

// The fields of the structures are those of the named tuples in `fast/prpn/contract.py`, with G = 4 H.
struct Sizes {
    int64_t length, batch_size, num_slots, size;
    int32_t num_threads, product_is_bfloat16, memories_need_gradient;
};

// The masks may be null. The backward pass has only the fields that the operator keeps.
struct Inputs {
    const float* input_gates;        // [B, T, G]
    const float* input_keys;         // [B, T, H]
    const float* key;                // [H, H]
    const float* recurrent;          // [G, H]
    const float* recurrent_bias;     // [G]
    const float* gates_gain;         // [G]
    const float* gates_bias;         // [G]
    const float* cell_gain;          // [H]
    const float* cell_bias;          // [H]
    const float* gates;              // [B, T, S]
    const float* memories;           // [B, S, 2, H]
    const float* newest_keep;        // [B, T, H]
    const float* key_keep;           // [B, T, H]
};

struct Trace {
    float* tape;                     // [B, S + T, 2, H]
    float* attentions;               // [B, T, S]
    float* exponentials;             // [B, T, S]
    float* keys;                     // [B, T, H]: divided by sqrt(H)
    float* summaries;                // [B, T, 2, H]
    float* normalized_gates;         // [B, T, G]
    float* activations;              // [B, T, G]
    float* normalized_cells;         // [B, T, H]
    float* tanh_cells;               // [B, T, H]
    float* gates_deviations;         // [B, T]: inverses of the biased standard deviations
    float* cells_deviations;         // [B, T]
};

struct Gradients {
    float* input_gates;              // [B, T, G]
    float* input_keys;               // [B, T, H]: of the keys before the division by sqrt(H)
    float* recurrent;                // [B, T, G]: of the map of the summaries, before its normalisation
    float* normalized_cells;         // [B, T, H]
    float* gates;                    // [B, T, S]
    float* scores;                   // [B, T, S], only used here
    float* summaries;                // [B, T, 2, H], only used here
    float* memories;                 // [B, S, 2, H]
};

struct Forward {
    Inputs inputs;
    Trace trace;
};

// Of the gradient of the trace only the tape is read, and may be null.
struct Backward {
    Trace grad_trace, trace;
    Inputs inputs;
    Gradients gradients;
};

}  // extern "C"

namespace {

thread_local Workspace workspace;

constexpr float ATTENTION_EPSILON = 1e-8f;
constexpr double DEVIATION_EPSILON = 1e-6;
// Keeps the inverse deviation of a constant row, whose variance is 0, finite.
constexpr double VARIANCE_EPSILON = 1e-24;

float total(Vector values) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += values[lane];
    return sum;
}

// Calls `function(first, lanes)` for each vector of `size` entries; the last vector may be partial.
template <class Function>
__attribute__((always_inline, flatten)) inline void for_vectors(int64_t size, Function function) {
    int64_t first = 0;
    for (; first + LANES <= size; first += LANES) function(first, static_cast<int64_t>(LANES));
    if (first < size) function(first, size - first);
}

void add_to(float* target, Vector values, int64_t lanes) { store(target, load(target, lanes) + values, lanes); }

float dot(const float* left, const float* right, int64_t size) {
    constexpr int PARTS = 4;
    Vector sums[PARTS] = {};
    int64_t i = 0;
    for (; i + PARTS * LANES <= size; i += PARTS * LANES)
        for (int part = 0; part < PARTS; part++)
            sums[part] += load(left + i + part * LANES) * load(right + i + part * LANES);
    for_vectors(size - i, [&](int64_t u, int64_t lanes) {
        sums[0] += load(left + i + u, lanes) * load(right + i + u, lanes);
    });
    return total((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Accumulates a weighted sum of rows, adding four rows at a time so that the target is read less often.
class WeightedSum {
   public:
    WeightedSum(float* target, int64_t size) : target_(target), size_(size) {}
    ~WeightedSum() { flush(); }
    void add(float weight, const float* row) {
        if (weight == 0) return;
        weights_[count_] = weight;
        rows_[count_++] = row;
        if (count_ == MAX_PENDING) flush();
    }

   private:
    static constexpr int MAX_PENDING = 4;
    void flush() {
        if (count_ == MAX_PENDING)
            for_vectors(size_, [&](int64_t u, int64_t lanes) {
                Vector sum = load(target_ + u, lanes);
                for (int i = 0; i < MAX_PENDING; i++) sum += weights_[i] * load(rows_[i] + u, lanes);
                store(target_ + u, sum, lanes);
            });
        else
            for (int i = 0; i < count_; i++)
                for_vectors(size_, [&](int64_t u, int64_t lanes) {
                    add_to(target_ + u, weights_[i] * load(rows_[i] + u, lanes), lanes);
                });
        count_ = 0;
    }
    float* target_;
    int64_t size_;
    float weights_[MAX_PENDING];
    const float* rows_[MAX_PENDING];
    int count_ = 0;
};

// Returns the factor from division by the biased standard deviation to division by the unbiased one + epsilon.
double rescaling(double inverse_deviation, int64_t size) {
    return 1 / (std::sqrt(static_cast<double>(size) / (size - 1)) + DEVIATION_EPSILON * inverse_deviation);
}

// Normalises like `DeviationNorm` before gain and bias; returns the inverse of the biased standard deviation.
float normalize(const float* inputs, int64_t size, float* outputs) {
    Vector sums{}, squares{};
    for_vectors(size, [&](int64_t u, int64_t lanes) { sums += load(inputs + u, lanes); });
    const float mean = total(sums) / size;
    for_vectors(size, [&](int64_t u, int64_t lanes) {
        Vector centred = load(inputs + u, lanes) - mean;
        for (int64_t lane = lanes; lane < LANES; lane++) centred[lane] = 0;
        squares += centred * centred;
    });
    const double inverse_deviation = 1 / std::sqrt(total(squares) / static_cast<double>(size) + VARIANCE_EPSILON);
    const float scale = static_cast<float>(inverse_deviation * rescaling(inverse_deviation, size));
    for_vectors(size, [&](int64_t u, int64_t lanes) {
        store(outputs + u, (load(inputs + u, lanes) - mean) * scale, lanes);
    });
    return static_cast<float>(inverse_deviation);
}

// The backward pass of `normalize`, given two sums over a row.
struct NormalizationGradient {
    float mean, along, scale;

    NormalizationGradient(Vector gradient_sums, Vector product_sums, float inverse_deviation, int64_t size) {
        const double factor = rescaling(inverse_deviation, size);
        mean = total(gradient_sums) / size;
        along = static_cast<float>(total(product_sums) / (factor * std::sqrt(static_cast<double>(size) * (size - 1))));
        scale = static_cast<float>(inverse_deviation * factor);
    }
    // Returns the gradient of the inputs from that of the normalised values and these values.
    Vector operator()(Vector gradient, Vector normalized) const {
        return (gradient - mean - normalized * along) * scale;
    }
};

// Rows of a product's left side, each `size` entries padded with zeros to the stride.
template <class Product>
struct Rows {
    Product* entries;
    int64_t stride;

    // Sets a row to `values`, times `keep` if it is given.
    void set(int64_t row, const float* values, const float* keep, int64_t size) const {
        Product* target = entries + row * stride;
        for_vectors(size, [&](int64_t u, int64_t lanes) {
            const Vector kept = keep ? load(values + u, lanes) * load(keep + u, lanes) : load(values + u, lanes);
            store(target + u, kept, lanes);
        });
        std::fill(target + size, target + stride, from_float<Product>(0.0f));
    }
};

// Columns of a weight in streams of LANES. One part of the work packs each stream and multiplies by it.
template <class Product>
struct PackedWeight {
    Product* entries;
    int64_t num_columns, stride;  // the stride of the left side's rows

    static int64_t streams(int64_t num_columns) { return (num_columns + LANES - 1) / LANES; }
    Range share_of(Part part) const { return part.of(streams(num_columns)); }
    Product* stream(int64_t number) const { return entries + number * stride * LANES; }
    int64_t lanes(int64_t number) const { return std::min<int64_t>(LANES, num_columns - number * LANES); }

    // Packs `weight` [num_columns, size], transposed.
    void pack_transposed(Part part, const float* weight, int64_t size) const {
        const Range mine = share_of(part);
        for (int64_t s = mine.begin; s < mine.end; s++)
            pack_rows(Weight{weight, nullptr, 1}, size, s * LANES, lanes(s), stream(s));
    }
    // Packs `weight` [size, num_columns].
    void pack(Part part, const float* weight, int64_t size) const {
        const Range mine = share_of(part);
        for (int64_t s = mine.begin; s < mine.end; s++)
            pack_columns(Weight{weight, nullptr, 1}, size, num_columns, s * LANES, lanes(s), stream(s));
    }
    // Writes `target` [num_rows, target_stride]; the stride must cover whole streams.
    void multiply_rows(Part part, const Rows<Product>& left, int64_t num_rows, float* target,
                       int64_t target_stride) const {
        const Range mine = share_of(part);
        Vector sums[MAX_ROWS * MAX_STREAMS];
        const Product* blocks[MAX_STREAMS];
        for (int64_t s = mine.begin; s < mine.end; s += MAX_STREAMS) {
            const int count = static_cast<int>(std::min<int64_t>(MAX_STREAMS, mine.end - s));
            int64_t k = 0;
            do {
                for (int i = 0; i < count; i++) blocks[i] = stream(s + i) + k * LANES;
                for_row_tiles(num_rows, [&](int64_t first, int rows) {
                    auto place = [&](int64_t row, int64_t i) {
                        return target + (first + row) * target_stride + (s + i) * LANES;
                    };
                    for (int row = 0; row < rows; row++)
                        for (int i = 0; i < count; i++) sums[row * count + i] = k ? load(place(row, i)) : Vector{};
                    multiply(rows, count, left.entries + first * stride + k, stride, blocks,
                             std::min(BLOCK, stride - k), sums);
                    for (int row = 0; row < rows; row++)
                        for (int i = 0; i < count; i++) store(place(row, i), sums[row * count + i]);
                });
                k += BLOCK;
            } while (k < stride);
        }
    }
};

template <class Product>
void run_forward(const Sizes& sizes, const Forward& arguments) {
    const Inputs& in = arguments.inputs;
    const Trace& trace = arguments.trace;
    constexpr int PAIR = Operand<Product>::PAIR;
    const int64_t T = sizes.length, B = sizes.batch_size, S = sizes.num_slots, H = sizes.size;
    const int64_t G = 4 * H, row_stride = round_up(H, PAIR);
    const int64_t key_streams = PackedWeight<Product>::streams(H), gate_streams = PackedWeight<Product>::streams(G);
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(H)));

    workspace.restart();
    auto* packed_recurrent = workspace.take<Product>(gate_streams * LANES * row_stride);
    auto* packed_key = workspace.take<Product>(key_streams * LANES * row_stride);
    const Rows<Product> newest{workspace.take<Product>(B * row_stride), row_stride};
    const Rows<Product> summary_rows{workspace.take<Product>(B * row_stride), row_stride};
    auto* key_products = workspace.take<float>(B * key_streams * LANES);
    auto* gate_products = workspace.take<float>(B * gate_streams * LANES);

    const PackedWeight<Product> key_weight{packed_key, H, row_stride};
    const PackedWeight<Product> recurrent_weight{packed_recurrent, G, row_stride};

    Team team(sizes.num_threads);
#pragma omp parallel num_threads(sizes.num_threads)
    {
        Team::Member member(team, omp_get_thread_num());
        auto memory = [&](int64_t b, int64_t place) { return trace.tape + (b * (S + T) + place) * 2 * H; };
        auto set_newest = [&](int64_t b, int64_t t) {
            newest.set(b, memory(b, S + t - 1), in.newest_keep ? in.newest_keep + (b * T + t) * H : nullptr, H);
        };
        member.run([&](Part part) {
            key_weight.pack_transposed(part, in.key, H);
            recurrent_weight.pack_transposed(part, in.recurrent, H);
            const Range rows = part.of(B);
            for (int64_t b = rows.begin; b < rows.end; b++) {
                std::memcpy(memory(b, 0), in.memories + b * S * 2 * H, S * 2 * H * sizeof(float));
                set_newest(b, 0);
            }
        });

        for (int64_t t = 0; t < T; t++) {
            member.run([&](Part part) {
                key_weight.multiply_rows(part, newest, B, key_products, key_streams * LANES);
            });

            member.run([&](Part part) {
                const Range rows = part.of(B);
                for (int64_t b = rows.begin; b < rows.end; b++) {
                    const int64_t step = b * T + t;
                    const float* product = key_products + b * key_streams * LANES;
                    const float* input_key = in.input_keys + step * H;
                    float* key = trace.keys + step * H;
                    for_vectors(H, [&](int64_t u, int64_t lanes) {
                        Vector sum = (load(input_key + u, lanes) + load(product + u, lanes)) * scale;
                        if (in.key_keep) sum *= load(in.key_keep + step * H + u, lanes);
                        store(key + u, sum, lanes);
                    });

                    float *attention = trace.attentions + step * S, *terms = trace.exponentials + step * S;
                    float largest = -INFINITY, sum = ATTENTION_EPSILON;
                    for (int64_t s = 0; s < S; s++) {
                        terms[s] = dot(key, memory(b, t + s), H);
                        largest = std::max(largest, terms[s]);
                    }
                    for (int64_t s = 0; s < S; s++) {
                        terms[s] = std::exp(terms[s] - largest);
                        attention[s] = terms[s] * in.gates[step * S + s];
                        sum += attention[s];
                    }
                    float* summary = trace.summaries + step * 2 * H;
                    std::fill_n(summary, 2 * H, 0.0f);
                    {
                        WeightedSum memories(summary, 2 * H);
                        for (int64_t s = 0; s < S; s++) memories.add(attention[s] /= sum, memory(b, t + s));
                    }
                    summary_rows.set(b, summary, nullptr, H);
                }
            });

            member.run([&](Part part) {
                recurrent_weight.multiply_rows(part, summary_rows, B, gate_products, gate_streams * LANES);
            });

            member.run([&](Part part) {
                const Range rows = part.of(B);
                for (int64_t b = rows.begin; b < rows.end; b++) {
                    const int64_t step = b * T + t;
                    float* recurrent = gate_products + b * gate_streams * LANES;
                    for_vectors(G, [&](int64_t u, int64_t lanes) {
                        add_to(recurrent + u, load(in.recurrent_bias + u, lanes), lanes);
                    });
                    float* normalized = trace.normalized_gates + step * G;
                    trace.gates_deviations[step] = normalize(recurrent, G, normalized);

                    const float* inputs = in.input_gates + step * G;
                    const float* summary_cell = trace.summaries + (step * 2 + 1) * H;
                    float *activations = trace.activations + step * G, *hidden = memory(b, S + t), *cell = hidden + H;
                    for_vectors(H, [&](int64_t u, int64_t lanes) {
                        auto gate = [&](int64_t i) {
                            const Vector scaled = load(normalized + i, lanes) * load(in.gates_gain + i, lanes);
                            return load(inputs + i, lanes) + scaled + load(in.gates_bias + i, lanes);
                        };
                        const Vector input_gate = sigmoid(gate(u)), forget_gate = sigmoid(gate(H + u));
                        const Vector candidate = hyperbolic_tangent(gate(2 * H + u));
                        const Vector output_gate = sigmoid(gate(3 * H + u));
                        store(activations + u, input_gate, lanes);
                        store(activations + H + u, forget_gate, lanes);
                        store(activations + 2 * H + u, candidate, lanes);
                        store(activations + 3 * H + u, output_gate, lanes);
                        store(cell + u, forget_gate * load(summary_cell + u, lanes) + input_gate * candidate, lanes);
                    });
                    float* normalized_cell = trace.normalized_cells + step * H;
                    float* tanh_cell = trace.tanh_cells + step * H;
                    trace.cells_deviations[step] = normalize(cell, H, normalized_cell);
                    for_vectors(H, [&](int64_t u, int64_t lanes) {
                        const Vector scaled = load(normalized_cell + u, lanes) * load(in.cell_gain + u, lanes);
                        const Vector bounded = hyperbolic_tangent(scaled + load(in.cell_bias + u, lanes));
                        store(tanh_cell + u, bounded, lanes);
                        store(hidden + u, load(activations + 3 * H + u, lanes) * bounded, lanes);
                    });
                    if (t + 1 < T) set_newest(b, t + 1);
                }
            });
        }
    }
}

template <class Product>
void run_backward(const Sizes& sizes, const Backward& arguments) {
    const Inputs& in = arguments.inputs;
    const Trace& trace = arguments.trace;
    const Gradients& gradients = arguments.gradients;
    const float* grad_tape = arguments.grad_trace.tape;
    constexpr int PAIR = Operand<Product>::PAIR;
    const int64_t T = sizes.length, B = sizes.batch_size, S = sizes.num_slots, H = sizes.size;
    const int64_t G = 4 * H, gate_stride = round_up(G, PAIR), key_stride = round_up(H, PAIR);
    const int64_t streams = PackedWeight<Product>::streams(H), product_stride = streams * LANES;
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(H)));

    workspace.restart();
    auto* packed_recurrent = workspace.take<Product>(product_stride * gate_stride);
    auto* packed_key = workspace.take<Product>(product_stride * key_stride);
    const Rows<Product> gate_rows{workspace.take<Product>(B * gate_stride), gate_stride};
    const Rows<Product> key_rows{workspace.take<Product>(B * key_stride), key_stride};
    auto* summary_products = workspace.take<float>(B * product_stride);
    auto* grad_newest = workspace.take<float>(B * product_stride);
    auto* scratch = workspace.take<float>(sizes.num_threads * 2 * H);

    const PackedWeight<Product> recurrent_weight{packed_recurrent, H, gate_stride};
    const PackedWeight<Product> key_weight{packed_key, H, key_stride};

    Team team(sizes.num_threads);
#pragma omp parallel num_threads(sizes.num_threads)
    {
        Team::Member member(team, omp_get_thread_num());
        float* grad_state = scratch + omp_get_thread_num() * 2 * H;  // of the hidden state, then of the cell state

        auto memory = [&](int64_t b, int64_t place) { return trace.tape + (b * (S + T) + place) * 2 * H; };
        // The gradient of a memory: its own, that of the steps with it in their window, and, for the newest memory of
        // a step, that of the step's key.
        auto gather = [&](int64_t b, int64_t place, float* target) {
            if (grad_tape)
                std::memcpy(target, grad_tape + (b * (S + T) + place) * 2 * H, 2 * H * sizeof(float));
            else
                std::fill_n(target, 2 * H, 0.0f);
            const int64_t first = std::max<int64_t>(0, place - S + 1), last = std::min(place, T - 1);
            {
                WeightedSum by_attention(target, 2 * H), by_score(target, H);
                for (int64_t t = first; t <= last; t++) {
                    const int64_t step = b * T + t, slot = step * S + place - t;
                    by_attention.add(trace.attentions[slot], gradients.summaries + step * 2 * H);
                    by_score.add(gradients.scores[slot], trace.keys + step * H);
                }
            }
            const int64_t next = place - S + 1;
            if (next < 0 || next >= T) return;
            const float *gradient = grad_newest + b * product_stride, *keep = nullptr;
            if (in.newest_keep) keep = in.newest_keep + (b * T + next) * H;
            for_vectors(H, [&](int64_t u, int64_t lanes) {
                Vector part = load(gradient + u, lanes);
                if (keep) part *= load(keep + u, lanes);
                add_to(target + u, part, lanes);
            });
        };
        member.run([&](Part part) {
            recurrent_weight.pack(part, in.recurrent, G);
            key_weight.pack(part, in.key, H);
        });

        for (int64_t t = T - 1; t >= 0; t--) {
            member.run([&](Part part) {
                const Range rows = part.of(B);
                for (int64_t b = rows.begin; b < rows.end; b++) {
                    const int64_t step = b * T + t;
                    const float *activations = trace.activations + step * G, *tanh_cell = trace.tanh_cells + step * H;
                    const float* normalized_cell = trace.normalized_cells + step * H;
                    float* grad_normalized_cell = gradients.normalized_cells + step * H;
                    gather(b, S + t, grad_state);

                    Vector sums{}, products{};
                    for_vectors(H, [&](int64_t u, int64_t lanes) {
                        const Vector bounded = load(tanh_cell + u, lanes), gain = load(in.cell_gain + u, lanes);
                        const Vector gradient = load(grad_state + u, lanes) * load(activations + 3 * H + u, lanes) *
                                                (1.0f - bounded * bounded);
                        store(grad_normalized_cell + u, gradient, lanes);
                        sums += gradient * gain;
                        products += gradient * gain * load(normalized_cell + u, lanes);
                    });
                    const NormalizationGradient of_cell(sums, products, trace.cells_deviations[step], H);

                    const float* normalized = trace.normalized_gates + step * G;
                    const float* summary_cell = trace.summaries + (step * 2 + 1) * H;
                    float* grad_input = gradients.input_gates + step * G;
                    float* grad_recurrent = gradients.recurrent + step * G;
                    float* grad_summary_cell = gradients.summaries + (step * 2 + 1) * H;
                    sums = products = Vector{};
                    for_vectors(H, [&](int64_t u, int64_t lanes) {
                        const Vector input_gate = load(activations + u, lanes);
                        const Vector forget_gate = load(activations + H + u, lanes);
                        const Vector candidate = load(activations + 2 * H + u, lanes);
                        const Vector output_gate = load(activations + 3 * H + u, lanes);
                        const Vector weighted = load(grad_normalized_cell + u, lanes) * load(in.cell_gain + u, lanes);
                        const Vector grad_cell =
                            load(grad_state + H + u, lanes) + of_cell(weighted, load(normalized_cell + u, lanes));
                        const Vector gate_gradients[4] = {
                            grad_cell * candidate * input_gate * (1.0f - input_gate),
                            grad_cell * load(summary_cell + u, lanes) * forget_gate * (1.0f - forget_gate),
                            grad_cell * input_gate * (1.0f - candidate * candidate),
                            load(grad_state + u, lanes) * load(tanh_cell + u, lanes) * output_gate *
                                (1.0f - output_gate)};
                        for (int gate = 0; gate < 4; gate++) {
                            const int64_t i = gate * H + u;
                            const Vector weighted = gate_gradients[gate] * load(in.gates_gain + i, lanes);
                            store(grad_input + i, gate_gradients[gate], lanes);
                            sums += weighted;
                            products += weighted * load(normalized + i, lanes);
                        }
                        store(grad_summary_cell + u, grad_cell * forget_gate, lanes);
                    });
                    const NormalizationGradient of_gates(sums, products, trace.gates_deviations[step], G);
                    for_vectors(G, [&](int64_t i, int64_t lanes) {
                        const Vector gradient = load(grad_input + i, lanes) * load(in.gates_gain + i, lanes);
                        store(grad_recurrent + i, of_gates(gradient, load(normalized + i, lanes)), lanes);
                    });
                    gate_rows.set(b, grad_recurrent, nullptr, G);
                }
            });

            member.run([&](Part part) {
                recurrent_weight.multiply_rows(part, gate_rows, B, summary_products, product_stride);
            });

            member.run([&](Part part) {
                const Range rows = part.of(B);
                for (int64_t b = rows.begin; b < rows.end; b++) {
                    const int64_t step = b * T + t;
                    float* grad_summary = gradients.summaries + step * 2 * H;
                    std::memcpy(grad_summary, summary_products + b * product_stride, H * sizeof(float));

                    const float *attention = trace.attentions + step * S, *gates = in.gates + step * S;
                    const float* terms = trace.exponentials + step * S;
                    float *grad_gates = gradients.gates + step * S, *grad_scores = gradients.scores + step * S;
                    float gated_sum = ATTENTION_EPSILON, taken = 0, scores_sum = 0, num_largest = 0;
                    for (int64_t s = 0; s < S; s++) {
                        grad_gates[s] = dot(grad_summary, memory(b, t + s), 2 * H);
                        gated_sum += terms[s] * gates[s];
                        taken += grad_gates[s] * attention[s];
                        num_largest += terms[s] == 1;
                    }
                    for (int64_t s = 0; s < S; s++) {
                        grad_gates[s] = (grad_gates[s] - taken) / gated_sum * terms[s];
                        grad_scores[s] = grad_gates[s] * gates[s];
                        scores_sum += grad_scores[s];
                    }
                    // The largest score was subtracted from all, which matters if the gates are nearly closed.
                    for (int64_t s = 0; s < S; s++)
                        if (terms[s] == 1) grad_scores[s] -= scores_sum / num_largest;

                    float* grad_key = gradients.input_keys + step * H;
                    std::fill_n(grad_key, H, 0.0f);
                    {
                        WeightedSum memories(grad_key, H);
                        for (int64_t s = 0; s < S; s++) memories.add(grad_scores[s] * scale, memory(b, t + s));
                    }
                    if (in.key_keep)
                        for_vectors(H, [&](int64_t u, int64_t lanes) {
                            const Vector keep = load(in.key_keep + step * H + u, lanes);
                            store(grad_key + u, load(grad_key + u, lanes) * keep, lanes);
                        });
                    key_rows.set(b, grad_key, nullptr, H);
                }
            });

            member.run([&](Part part) {
                key_weight.multiply_rows(part, key_rows, B, grad_newest, product_stride);
            });
        }
        member.run([&](Part part) {
            const Range rows = part.of(B);
            if (!sizes.memories_need_gradient) return;
            for (int64_t b = rows.begin; b < rows.end; b++)
                for (int64_t place = 0; place < S; place++)
                    gather(b, place, gradients.memories + (b * S + place) * 2 * H);
        });
    }
}

}  // namespace

extern "C" {

// Returns the version of the structures above, or 0 if this CPU lacks the instructions of this library.
int prpn_interface() { return is_supported() ? 3 : 0; }

// Both return 0, or 1 when memory runs out.
int prpn_forward(const Sizes* sizes, const Forward* arguments) {
    try {
        (sizes->product_is_bfloat16 ? run_forward<BFloat16> : run_forward<float>)(*sizes, *arguments);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

int prpn_backward(const Sizes* sizes, const Backward* arguments) {
    try {
        (sizes->product_is_bfloat16 ? run_backward<BFloat16> : run_backward<float>)(*sizes, *arguments);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

}  // extern "C"
