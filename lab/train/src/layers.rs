//! The layer that all shipped networks are built from: convolution, batch normalisation, ReLU; and the
//! same with the normalisation folded into the convolution, which is what gets traced and shipped.

use tch::nn::{self, Module, ModuleT};
use tch::{Kind, Tensor};

/// A network that can be trained and then shipped.
pub(crate) trait Network {
    /// What the loss is computed from. `[n, 3, height, width]`, 0 to 1.
    fn forward(&self, x: &Tensor, train: bool) -> Tensor;

    /// What the shipped model gives.
    fn output(&self, x: &Tensor) -> Tensor {
        self.forward(x, false)
    }

    /// Ends training: all normalisations become part of their convolutions.
    fn fold(&mut self);
}

/// A convolution followed by batch normalisation and ReLU.
#[derive(Debug)]
pub(crate) struct ConvUnit {
    conv: nn::Conv2D,
    norm: nn::BatchNorm,
    shape: Shape,
    /// Weight and bias of the folded form; set once training is over.
    folded: Option<(Tensor, Tensor)>,
}

/// Shape of a [`ConvUnit`]; pairs are height, width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) inputs: i64,
    pub(crate) outputs: i64,
    pub(crate) kernel: [i64; 2],
    pub(crate) stride: [i64; 2],
    pub(crate) padding: [i64; 2],
}

impl Shape {
    /// 3x3 with padding.
    pub(crate) fn square(inputs: i64, outputs: i64, stride: i64) -> Self {
        Shape {
            inputs,
            outputs,
            kernel: [3; 2],
            stride: [stride; 2],
            padding: [1; 2],
        }
    }
}

impl ConvUnit {
    pub(crate) fn new(path: nn::Path<'_>, shape: Shape) -> Self {
        let config = nn::ConvConfigND::<[i64; 2]> {
            stride: shape.stride,
            padding: shape.padding,
            dilation: [1, 1],
            groups: 1,
            bias: false,
            ws_init: nn::init::DEFAULT_KAIMING_NORMAL,
            bs_init: nn::Init::Const(0.0),
            padding_mode: nn::PaddingMode::Zeros,
        };
        let conv = nn::conv(
            &path / "conv",
            shape.inputs,
            shape.outputs,
            shape.kernel,
            config,
        );
        let ones = nn::BatchNormConfig {
            ws_init: nn::Init::Const(1.0),
            ..Default::default()
        };
        let norm = nn::batch_norm2d(&path / "norm", shape.outputs, ones);
        ConvUnit {
            conv,
            norm,
            shape,
            folded: None,
        }
    }

    pub(crate) fn forward(&self, x: &Tensor, train: bool) -> Tensor {
        match &self.folded {
            Some((weight, bias)) => {
                let Shape {
                    stride, padding, ..
                } = self.shape;
                x.conv2d(weight, Some(bias), stride, padding, [1, 1], 1)
                    .relu()
            }
            None => self.norm.forward_t(&self.conv.forward(x), train).relu(),
        }
    }

    /// Folds the normalisation into the convolution: the same function, one operation less.
    pub(crate) fn fold(&mut self) {
        let norm = &self.norm;
        let (Some(ws), Some(bs)) = (&norm.ws, &norm.bs) else {
            unreachable!("batch normalisation is affine by default")
        };
        let scale = ws / (&norm.running_var + nn::BatchNormConfig::default().eps).sqrt();
        let weight = &self.conv.ws * scale.reshape([-1, 1, 1, 1]);
        let bias = bs - &norm.running_mean * &scale;
        self.folded = Some((weight.detach().copy(), bias.detach().copy()));
    }
}

/// Mean over height and width: `[n, c, h, w]` to `[n, c]`.
pub(crate) fn pooled(x: &Tensor) -> Tensor {
    x.mean_dim([2i64, 3].as_slice(), false, Kind::Float)
}

/// Each picture less its own mean, by its own spread: dark and bright pictures look alike.
pub(crate) fn standardised(x: &Tensor) -> Tensor {
    let dims = [1i64, 2, 3];
    let centred = x - x.mean_dim(dims.as_slice(), true, Kind::Float);
    let spread = (&centred * &centred)
        .mean_dim(dims.as_slice(), true, Kind::Float)
        .sqrt();
    centred / (spread + 0.05)
}
