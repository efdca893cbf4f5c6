//! Little-endian reading and writing with bounds checks.

/// What is wrong with a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt(pub &'static str);

/// Reads numbers from the front of a byte string.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// If the file ends before.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Corrupt> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Corrupt("the file ends too early"))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    ///
    /// # Errors
    /// If the file ends before.
    pub fn u8(&mut self) -> Result<u8, Corrupt> {
        Ok(self.array::<1>()?[0])
    }

    /// The next 16-bit number.
    ///
    /// # Errors
    /// If the file ends before.
    pub fn u16(&mut self) -> Result<u16, Corrupt> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next 32-bit number.
    ///
    /// # Errors
    /// If the file ends before.
    pub fn u32(&mut self) -> Result<u32, Corrupt> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next single-precision number.
    ///
    /// # Errors
    /// If the file ends before.
    pub fn f32(&mut self) -> Result<f32, Corrupt> {
        Ok(f32::from_le_bytes(self.array()?))
    }
}

/// Appends a 16-bit number.
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a 32-bit number.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a single-precision number.
pub fn put_f32(out: &mut Vec<u8>, value: f32) {
    out.extend_from_slice(&value.to_le_bytes());
}
