"""Headers of coded pictures: what tells whether one is missing, and in which order they are shown.

Containers lose packets silently, and AVI stores no presentation times. MPEG-1 and MPEG-2 number
the pictures of a group (temporal reference), MPEG-4 Part 2 states the type of each picture, and
H.264 counts reference pictures (frame_num) and orders them for display (picture order count, POC).
Only the first bytes of a packet are read.
"""

from dataclasses import dataclass
from fractions import Fraction

HEADER_BYTES = 1024
"""Bytes of a packet that the functions below need; user data in front may take most of them."""

# ---- MPEG-1 and MPEG-2


_MPEG_RATES = (24000, 24024, 25025, 30000, 30030, 50050, 60000, 60060)  # in 1/1001 of a second


@dataclass(frozen=True, slots=True)
class MpegPicture:
    """The header of a picture, and of the group that starts with it."""

    temporal_reference: int  # place in its group, in order of display
    time_code: tuple[int, int] | None  # seconds and pictures, where a group starts
    rate: Fraction | None  # frames per second, where a sequence starts

    @property
    def starts_group(self) -> bool:
        return self.time_code is not None


def mpeg_picture(head: bytes) -> MpegPicture | None:
    """The first picture header; None where there is none."""
    at = head.find(b"\0\0\1\0")
    if at < 0 or at + 6 > len(head):
        return None
    time_code = None
    group = head.find(b"\0\0\1\xb8", 0, at)
    if group >= 0:
        code = int.from_bytes(head[group + 4 : group + 8], "big")
        hours, minutes, seconds = code >> 26 & 31, code >> 20 & 63, code >> 13 & 63
        time_code = ((60 * hours + minutes) * 60 + seconds, code >> 7 & 63)
    rate, sequence = None, head.find(b"\0\0\1\xb3", 0, at)
    if sequence >= 0:
        code = head[sequence + 7] & 15
        rate = Fraction(_MPEG_RATES[code - 1], 1001) if 1 <= code <= 8 else None
    return MpegPicture(head[at + 4] << 2 | head[at + 5] >> 6, time_code, rate)


# ---- MPEG-4 Part 2


@dataclass(frozen=True, slots=True)
class Mpeg4Picture:
    """The first picture of a packet."""

    is_b: bool  # predicted from both sides, and shown when it is decoded
    is_packed: bool  # another picture follows in the packet, in place of the next packet's


def mpeg4_picture(data: bytes) -> Mpeg4Picture | None:
    """The picture of a whole packet; None where there is none."""
    at = data.find(b"\0\0\1\xb6")
    if at < 0 or at + 5 > len(data):
        return None
    return Mpeg4Picture(data[at + 4] >> 6 == 2, data.find(b"\0\0\1\xb6", at + 4) >= 0)


# ---- H.264


@dataclass(frozen=True, slots=True)
class SequenceParameters:
    """What the slice headers of a sequence cannot be read without."""

    frame_num_bits: int
    poc_type: int
    poc_bits: int
    frames_only: bool
    separate_planes: bool
    gaps_allowed: bool
    width: int  # macroblocks
    height: int
    height_place: tuple[int, int]  # bits of the unit's content that hold the height
    cut: tuple[int, int, int, int]  # pixels that are not shown: left, right, top, bottom
    bottom_place: tuple[int, int] | None  # bits that hold the last of them; None where all are 0


@dataclass(frozen=True, slots=True)
class H264Picture:
    """The header of the first slice of a picture."""

    is_idr: bool  # nothing after it refers to anything before it
    is_reference: bool
    is_field: bool
    frame_num: int
    poc_lsb: int  # 0 unless the sequence stores it


class _Bits:
    """Reads a NAL unit bit by bit."""

    def __init__(self, payload: bytes) -> None:
        payload = payload.replace(b"\0\0\3", b"\0\0")
        self._value = int.from_bytes(payload, "big")
        self._total = self._left = 8 * len(payload)

    @property
    def position(self) -> int:
        """Bits read so far."""
        return self._total - self._left

    def bits(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise ValueError("the header is cut off")
        return self._value >> self._left & ((1 << count) - 1)

    def unsigned(self) -> int:
        """An Exp-Golomb code."""
        rest = self._value & ((1 << self._left) - 1)
        zeros = self._left - rest.bit_length()
        self.bits(zeros)
        return self.bits(zeros + 1) - 1

    def signed(self) -> int:
        code = self.unsigned()
        return (code + 1) // 2 if code & 1 else -(code // 2)


class H264Headers:
    """Reads slice headers of one stream, and keeps the parameters that they need."""

    def __init__(self, extradata: bytes | None) -> None:
        self.parameters: SequenceParameters | None = None
        self._extradata = extradata
        self._length_size = 0  # bytes of the length before each NAL unit; 0: start codes instead
        if not extradata:
            return
        if extradata[0] == 1 and len(extradata) > 8:
            self._length_size = (extradata[4] & 3) + 1
            size = int.from_bytes(extradata[6:8], "big")
            self._read_parameters(extradata[8 : 8 + size])
        else:
            for unit in self._units(extradata):
                self._read_parameters(unit)

    def picture(self, head: bytes) -> H264Picture | None:
        """The picture of a packet; None where its header cannot be read."""
        for unit in self._units(head):
            kind = unit[0] & 31 if unit else 0
            if kind == 7:
                self._read_parameters(unit)
            elif kind in (1, 5) and self.parameters is not None:
                try:
                    return _slice(unit[:48], self.parameters)
                except ValueError:
                    return None
        return None

    def with_another_row(self, data: bytes) -> bytes:
        """A packet or extradata in which all sequence parameters have one more row, shown whole."""
        if data[:1] == b"\1" and self._length_size and data is self._extradata:
            size = int.from_bytes(data[6:8], "big")
            unit = with_another_row(data[8 : 8 + size])
            return data[:6] + len(unit).to_bytes(2, "big") + unit + data[8 + size :]
        if self._length_size:
            units = self._units(data)
            changed = [with_another_row(u) if u and u[0] & 31 == 7 else u for u in units]
            return b"".join(len(u).to_bytes(self._length_size, "big") + u for u in changed)
        head, *units = data.split(b"\0\0\1")
        changed = [self._annexed(u) if u and u[0] & 31 == 7 else u for u in units]
        return b"\0\0\1".join([head, *changed])

    @staticmethod
    def _annexed(unit: bytes) -> bytes:
        """Parameters behind a start code; zeros at their end belong to the next one."""
        content = unit.rstrip(b"\0")
        return with_another_row(content) + unit[len(content) :]

    def _read_parameters(self, unit: bytes) -> None:
        if unit and unit[0] & 31 == 7:
            try:
                self.parameters = _sequence_parameters(unit)
            except ValueError:
                self.parameters = None

    def _units(self, head: bytes) -> "list[bytes]":
        """NAL units; the last one may be cut off."""
        units: list[bytes] = []
        if not self._length_size:
            return [unit for unit in head.split(b"\0\0\1")[1:] if unit]
        at = 0
        while at + self._length_size < len(head):
            size = int.from_bytes(head[at : at + self._length_size], "big")
            at += self._length_size
            units.append(head[at : at + size])
            at += size
        return units


def _slice(unit: bytes, parameters: SequenceParameters) -> H264Picture:
    is_idr = unit[0] & 31 == 5
    bits = _Bits(unit[1:])
    bits.unsigned()  # first macroblock
    bits.unsigned()  # type
    bits.unsigned()  # picture parameter set
    if parameters.separate_planes:
        bits.bits(2)
    frame_num = bits.bits(parameters.frame_num_bits)
    is_field = not parameters.frames_only and bits.bits(1) == 1
    if is_field:
        bits.bits(1)
    if is_idr:
        bits.unsigned()
    poc_lsb = bits.bits(parameters.poc_bits) if parameters.poc_type == 0 else 0
    return H264Picture(is_idr, unit[0] >> 5 & 3 > 0, is_field, frame_num, poc_lsb)


def _sequence_parameters(unit: bytes) -> SequenceParameters:
    profile = unit[1]
    bits = _Bits(unit[4:])
    bits.unsigned()  # id
    separate_planes, chroma = False, 1
    if profile in (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135):
        chroma = bits.unsigned()
        if chroma == 3:
            separate_planes = bits.bits(1) == 1
        bits.unsigned()
        bits.unsigned()
        bits.bits(1)
        if bits.bits(1):
            for index in range(12 if chroma == 3 else 8):
                if bits.bits(1):
                    _skip_scaling_list(bits, 16 if index < 6 else 64)
    frame_num_bits = bits.unsigned() + 4
    poc_type, poc_bits = bits.unsigned(), 0
    if poc_type == 0:
        poc_bits = bits.unsigned() + 4
    elif poc_type == 1:
        bits.bits(1)
        bits.signed()
        bits.signed()
        for _ in range(bits.unsigned()):
            bits.signed()
    bits.unsigned()  # reference frames
    gaps_allowed = bits.bits(1) == 1
    width = bits.unsigned() + 1
    before = bits.position
    height = bits.unsigned() + 1
    place = (before, bits.position)
    if frame_num_bits > 16 or poc_bits > 16 or max(width, height) > 4096:
        raise ValueError("the parameters are damaged")
    frames_only = bits.bits(1) == 1
    bits.bits(1 if frames_only else 2)  # fields by macroblock, direct prediction
    left = right = top = bottom = 0
    bottom_place = None
    if bits.bits(1):
        left, right, top = bits.unsigned(), bits.unsigned(), bits.unsigned()
        before = bits.position
        bottom = bits.unsigned()
        bottom_place = (before, bits.position)
    across = 2 if chroma in (1, 2) and not separate_planes else 1  # pixels of a unit
    down = (2 if chroma == 1 else 1) * (1 if frames_only else 2)
    return SequenceParameters(
        frame_num_bits,
        poc_type,
        poc_bits,
        frames_only,
        separate_planes,
        gaps_allowed,
        width,
        height,
        place,
        (across * left, across * right, down * top, down * bottom),
        bottom_place,
    )


def with_another_row(unit: bytes) -> bytes:
    """The same sequence parameters for pictures that are one row of macroblocks higher.

    They are shown down to the end of that row, also where the last lines were not.
    """
    parameters = _sequence_parameters(unit)
    content = unit[4:].replace(b"\0\0\3", b"\0\0")
    bits = f"{int.from_bytes(content, 'big'):0{8 * len(content)}b}"
    start, stop = parameters.height_place
    cut_start, cut_stop = parameters.bottom_place or (stop, stop)
    code = f"{parameters.height + 1:b}"
    none = "" if parameters.bottom_place is None else "1"  # the code of 0
    changed = bits[:start] + "0" * (len(code) - 1) + code + bits[stop:cut_start] + none
    changed = (changed + bits[cut_stop:]).rstrip("0")
    changed += "0" * (-len(changed) % 8)
    escaped, zeros = bytearray(), 0
    for byte in int(changed, 2).to_bytes(len(changed) // 8, "big"):
        if zeros >= 2 and byte <= 3:
            escaped.append(3)
            zeros = 0
        escaped.append(byte)
        zeros = zeros + 1 if byte == 0 else 0
    return unit[:4] + bytes(escaped)


def _skip_scaling_list(bits: _Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.signed()) % 256
        last = following or last


class FrameNumbers:
    """Follows `frame_num` from picture to picture: a step of more than one is a lost picture."""

    def __init__(self, extradata: bytes | None) -> None:
        self._headers = H264Headers(extradata)
        self._expected: int | None = None  # of the next picture; None where nothing is known
        self._reference: int | None = None  # of the last reference picture

    def restart(self) -> None:
        """Forget the pictures before, as a decoder does that starts at a key frame."""
        self._expected = self._reference = None

    def follows(self, head: bytes) -> bool:
        """Whether a picture follows the one before it, without a lost one between them."""
        picture = self._headers.picture(head)
        parameters = self._headers.parameters
        if picture is None or parameters is None or parameters.gaps_allowed:
            self.restart()
            return True  # not known; the decoder reports what it cannot read
        expected = self._expected
        if picture.is_idr or expected is None:
            complete = True
        else:
            second_field = picture.is_field and picture.frame_num == self._reference
            complete = picture.frame_num == expected or second_field
        if picture.is_reference or expected is None or picture.is_idr:
            if picture.is_reference:
                self._reference = picture.frame_num
                self._expected = (picture.frame_num + 1) % (1 << parameters.frame_num_bits)
            else:
                self._expected = picture.frame_num
        return complete
