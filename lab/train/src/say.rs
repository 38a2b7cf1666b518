//! The sequence model `say.pt`, `say.step.pt`: the digits of a number to the letters of its English name, "407" to
//! "four hundred seven". A reader makes a memory of the digits; the step, a gated recurrent unit that looks
//! into the memory, writes a letter. A name has 3 to 100 letters.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tch::nn::{self, Module};
use tch::{Kind, Reduction, Tensor};

/// Digits of the longest number; the default of the module `text_generator`.
pub(crate) const WIDTH: usize = 9;
/// Classes: the end, a space, a to z.
const N_CLASSES: i64 = 28;
/// Width of a place of the memory.
const MEMORY: i64 = 32;
/// Width of the state.
const STATE: i64 = 64;
/// Width of what stands for the letter written last.
const LETTER: i64 = 16;
/// Target of a place after a text's end, which the loss leaves out.
const IGNORED: i64 = -100;

/// The network.
#[derive(Debug)]
pub(crate) struct Say {
    /// `[11, MEMORY]`: nothing, 0 to 9.
    digits: Tensor,
    /// `[WIDTH, MEMORY]`: what each place adds.
    places: Tensor,
    near: [nn::Conv1D; 2],
    start: nn::Linear,
    /// `[N_CLASSES, LETTER]`.
    letters: Tensor,
    question: nn::Linear,
    /// Weights of the recurrent unit: of its input and of the state, then their biases.
    weights: [Tensor; 4],
    answer: nn::Linear,
}

impl Say {
    pub(crate) fn new(path: &nn::Path<'_>) -> Self {
        let normal = |name: &str, shape: &[i64], stdev| {
            path.var(name, shape, nn::Init::Randn { mean: 0.0, stdev })
        };
        let near = |name: &str, kernel: i64| {
            let config = nn::ConvConfig {
                padding: kernel / 2,
                ..Default::default()
            };
            nn::conv1d(path / name, MEMORY, MEMORY, kernel, config)
        };
        let gates = 3 * STATE;
        let scale = 1.0 / (STATE as f64).sqrt();
        Say {
            digits: normal("digits", &[11, MEMORY], 0.5),
            places: normal("places", &[WIDTH as i64, MEMORY], 0.5),
            near: [near("near1", 3), near("near2", 5)],
            start: nn::linear(path / "start", MEMORY, STATE, Default::default()),
            letters: normal("letters", &[N_CLASSES, LETTER], 0.5),
            question: nn::linear(path / "question", STATE, MEMORY, Default::default()),
            weights: [
                normal("input", &[gates, LETTER + MEMORY], scale),
                normal("state", &[gates, STATE], scale),
                normal("input_bias", &[gates], 0.01),
                normal("state_bias", &[gates], 0.01),
            ],
            answer: nn::linear(
                path / "answer",
                STATE + MEMORY,
                N_CLASSES,
                Default::default(),
            ),
        }
    }

    /// Digits counted from 1, `[n, WIDTH]`, 0 where there is none, to the first state, `[n, STATE]`, and the
    /// memory, `[n, WIDTH, MEMORY]`.
    pub(crate) fn read(&self, digits: &Tensor) -> [Tensor; 2] {
        let places =
            Tensor::embedding(&self.digits, &digits.to_kind(Kind::Int64), -1, false, false);
        let x = (places + &self.places).transpose(1, 2);
        let x = &x + self.near[0].forward(&x).relu();
        let x = &x + self.near[1].forward(&x).relu();
        let memory = x.transpose(1, 2).contiguous();
        let mean = memory.mean_dim([1i64].as_slice(), false, Kind::Float);
        [self.start.forward(&mean).tanh(), memory]
    }

    /// The letter written last, `[n]`, the state and the memory to logits, `[n, N_CLASSES]`, and the next state.
    pub(crate) fn step(&self, last: &Tensor, state: &Tensor, memory: &Tensor) -> [Tensor; 2] {
        let last = Tensor::embedding(&self.letters, &last.to_kind(Kind::Int64), -1, false, false);
        let question = self.question.forward(state).unsqueeze(2);
        let weight = memory.bmm(&question).softmax(1, Kind::Float);
        let seen = (memory * weight).sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
        let [input, own, input_bias, own_bias] = &self.weights;
        let x = Tensor::cat(&[&last, &seen], 1);
        let state = x.gru_cell(state, input, own, Some(input_bias), Some(own_bias));
        let logits = self.answer.forward(&Tensor::cat(&[&state, &seen], 1));
        [logits, state]
    }

    /// The shipped form of the reader: state and memory as one row.
    pub(crate) fn shipped_reader(&self, digits: &Tensor) -> Tensor {
        let [state, memory] = self.read(digits);
        Tensor::cat(&[state, memory.flatten(1, -1)], 1)
    }

    /// The shipped form of the step: takes such a row, gives logits and the next one.
    pub(crate) fn shipped_step(&self, last: &Tensor, row: &Tensor) -> Tensor {
        let width = WIDTH as i64;
        let memory = row.narrow(1, STATE, width * MEMORY);
        let [logits, state] = self.step(
            last,
            &row.narrow(1, 0, STATE),
            &memory.reshape([-1, width, MEMORY]),
        );
        Tensor::cat(&[logits, state, memory], 1)
    }
}

const ONES: [&str; 20] = [
    "",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] = [
    "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
];

/// The English name of a number below a billion.
pub(crate) fn name(number: u32) -> String {
    if number == 0 {
        return "zero".to_owned();
    }
    let mut words = Vec::new();
    for (unit, name) in [(1_000_000, "million"), (1000, "thousand"), (1, "")] {
        let group = (number / unit % 1000) as usize;
        if group == 0 {
            continue;
        }
        if group >= 100 {
            words.extend([ONES[group / 100], "hundred"]);
        }
        let rest = group % 100;
        if rest < 20 {
            words.push(ONES[rest]);
        } else {
            words.extend([TENS[rest / 10], ONES[rest % 10]]);
        }
        words.push(name);
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

/// A number of `n_digits` digits, leading zeros included, as text.
fn digits(n_digits: usize, rng: &mut ChaCha8Rng) -> String {
    // Zeros are the hard part of the names of numbers.
    let zeros = *crate::data::any(&[0.0, 0.1, 0.6], rng);
    (0..n_digits)
        .map(|_| {
            if rng.random_bool(zeros) {
                '0'
            } else {
                char::from(b'0' + rng.random_range(0..10u8))
            }
        })
        .collect()
}

/// A text of 1 to 9 digits.
pub(crate) fn draw(rng: &mut ChaCha8Rng) -> String {
    digits(rng.random_range(1..=WIDTH), rng)
}

/// Numbers and their names.
pub(crate) struct Batch {
    digits: Tensor,
    /// Classes by step and number, the end included.
    classes: Vec<Vec<i64>>,
}

impl Batch {
    /// Numbers of equally many digits: names of like length waste few steps.
    pub(crate) fn draw(n: usize, rng: &mut ChaCha8Rng) -> Self {
        let n_digits = rng.random_range(1..=WIDTH);
        let mut data = vec![0.0f32; n * WIDTH];
        let mut names = Vec::with_capacity(n);
        for row in data.chunks_exact_mut(WIDTH) {
            let text = digits(n_digits, rng);
            for (v, c) in row[WIDTH - n_digits..].iter_mut().zip(text.bytes()) {
                *v = f32::from(c - b'0' + 1);
            }
            names.push(name(text.parse().expect("at most nine digits")));
        }
        let longest = names.iter().map(String::len).max().unwrap_or(0);
        let class = |name: &String, i: usize| match name.as_bytes().get(i) {
            Some(b' ') => 1,
            Some(letter) => i64::from(letter - b'a') + 2,
            None if i == name.len() => 0,
            None => IGNORED,
        };
        Batch {
            digits: Tensor::from_slice(&data).reshape([n as i64, WIDTH as i64]),
            classes: (0..=longest)
                .map(|i| names.iter().map(|name| class(name, i)).collect())
                .collect(),
        }
    }

    /// Each step is told the right letter before it.
    pub(crate) fn loss(&self, network: &Say) -> Tensor {
        let [mut state, memory] = network.read(&self.digits);
        let mut last = Tensor::zeros([self.digits.size()[0]], (Kind::Int64, self.digits.device()));
        let mut logits = Vec::with_capacity(self.classes.len());
        for classes in &self.classes {
            let [scores, next] = network.step(&last, &state, &memory);
            logits.push(scores);
            state = next;
            last = Tensor::from_slice(classes).clamp_min(0);
        }
        let classes = Tensor::from_slice(&self.classes.concat());
        let weight: Option<Tensor> = None;
        Tensor::cat(&logits, 0).cross_entropy_loss(&classes, weight, Reduction::Mean, IGNORED, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_english_names() {
        let cases = [
            (0, "zero"),
            (7, "seven"),
            (14, "fourteen"),
            (40, "forty"),
            (99, "ninety nine"),
            (407, "four hundred seven"),
            (1_000, "one thousand"),
            (30_015, "thirty thousand fifteen"),
            (2_000_300, "two million three hundred"),
            (911_000_020, "nine hundred eleven million twenty"),
        ];
        for (number, expected) in cases {
            assert_eq!(name(number), expected);
        }
        let longest = (0..1000).map(|n| name(n).len()).max().expect("numbers");
        let all_three = 3 * longest + " million ".len() + " thousand ".len();
        assert_eq!(
            all_three, 100,
            "the module allows more than the longest name"
        );
        assert_eq!(
            name(777_777_777).len(),
            all_three - 3 * (longest - name(777).len())
        );
    }
}
