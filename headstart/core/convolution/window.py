"""How a kernel moves over an image, and the shapes that follow."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Shape", "Window"]

Shape = tuple[int, ...]


def _dilated(sizes: Sequence[int], dilation: Sequence[int]) -> Shape:
    return tuple(0 if size == 0 else (size - 1) * step + 1 for size, step in zip(sizes, dilation, strict=True))


@dataclass(frozen=True)
class Window:
    """Strides, padding and dilations of a convolution, one entry for each spatial dimension."""

    strides: Shape
    padding: tuple[tuple[int, int], ...]
    image_dilation: Shape
    kernel_dilation: Shape

    @property
    def padded(self) -> tuple[tuple[int, int, int], ...]:
        """Padding and dilation of the image as `jax.lax.pad` takes them."""
        pads = zip(self.padding, self.image_dilation, strict=True)
        return tuple((low, high, dilation - 1) for (low, high), dilation in pads)

    def output(self, image: Sequence[int], kernel: Sequence[int]) -> Shape:
        """Spatial shape of the result."""
        sizes = zip(
            _dilated(image, self.image_dilation),
            self.padding,
            _dilated(kernel, self.kernel_dilation),
            self.strides,
            strict=True,
        )
        return tuple(max(0, (size + low + high - reach) // stride + 1) for size, (low, high), reach, stride in sizes)

    def towards_image(self, image: Sequence[int], kernel: Sequence[int]) -> "Window":
        """The window with which the mirrored kernel takes a cotangent of the result back to the image."""
        reach = _dilated(kernel, self.kernel_dilation)
        before = [size - low - 1 for size, (low, _) in zip(reach, self.padding, strict=True)]
        result = _dilated(self.output(image, kernel), self.strides)
        sizes = zip(_dilated(image, self.image_dilation), reach, result, before, strict=True)
        after = [full + size - 1 - moved - first for full, size, moved, first in sizes]
        return Window(self.image_dilation, tuple(zip(before, after, strict=True)), self.strides, self.kernel_dilation)

    def towards_kernel(self, image: Sequence[int], kernel: Sequence[int]) -> "Window":
        """The window with which a cotangent of the result, as a kernel, moves over the image to give the kernel's."""
        reach = _dilated(kernel, self.kernel_dilation)
        result = _dilated(self.output(image, kernel), self.strides)
        sizes = zip(_dilated(image, self.image_dilation), reach, result, self.padding, strict=True)
        padding = tuple((low, moved - full + size - low - 1) for full, size, moved, (low, _) in sizes)
        return Window(self.kernel_dilation, padding, self.image_dilation, self.strides)
