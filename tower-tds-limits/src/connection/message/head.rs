//! What a message's head says about its body (RFC 9112, section 6.3).

/// One head, read line by line.
#[derive(Debug)]
pub(super) struct Head {
    role: Role,
    framing: Framing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Request { head_only: bool },
    Response { status: u16, head_only: bool },
}

/// What the fields have said about the body so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Unsaid,
    Length(u64),
    Chunked,
}

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Length(u64),
    Chunks,
    /// The head was an interim response; the next one follows.
    AnotherHead,
    /// Another protocol, or a body that ends with the connection.
    Unknown,
}

// === impl Head ===

impl Head {
    pub(super) const fn of_request() -> Self {
        Self::new(Role::Request { head_only: false })
    }

    pub(super) const fn of_response() -> Self {
        Self::new(Role::Response {
            status: 0,
            head_only: false,
        })
    }

    const fn new(role: Role) -> Self {
        Self {
            role,
            framing: Framing::Unsaid,
        }
    }

    /// Whether the request's response has no body, whatever its fields say.
    pub(super) fn asks_for_the_head(&self) -> bool {
        self.role == Role::Request { head_only: true }
    }

    /// This is the response to a request for the head alone.
    pub(super) fn answer_with_the_head(&mut self) {
        if let Role::Response { head_only, .. } = &mut self.role {
            *head_only = true;
        }
    }

    /// Reads the first line. Gives `None` if that leaves open what follows.
    pub(super) fn start(&mut self, line: &[u8]) -> Option<()> {
        let mut words = line.split(|byte| *byte == b' ');
        match &mut self.role {
            Role::Request { head_only } => {
                let method = words.next()?;
                let version = words.next_back()?;
                *head_only = method == b"HEAD";
                (method != b"CONNECT" && version.starts_with(b"HTTP/1.")).then_some(())
            }
            Role::Response { status, .. } => {
                let version = words.next()?;
                *status = str::from_utf8(words.next()?).ok()?.parse().ok()?;
                version.starts_with(b"HTTP/1.").then_some(())
            }
        }
    }

    /// Reads one field. Gives `None` if the body's end could be read in two ways.
    pub(super) fn field(&mut self, line: &[u8]) -> Option<()> {
        match line.first()? {
            b'c' | b'C' | b't' | b'T' => {}
            // A line folded into the one before, which hardly anybody sends any more.
            b' ' | b'\t' => return None,
            _ => return Some(()),
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        let framing = if name.trim_ascii().eq_ignore_ascii_case(b"content-length") {
            Framing::Length(digits(value.get(1..)?.trim_ascii())?)
        } else if name.trim_ascii().eq_ignore_ascii_case(b"transfer-encoding") {
            let coding = value.get(1..)?.trim_ascii();
            coding
                .eq_ignore_ascii_case(b"chunked")
                .then_some(Framing::Chunked)?
        } else {
            return Some(());
        };
        let unsaid = self.framing == Framing::Unsaid;
        self.framing = framing;
        unsaid.then_some(())
    }

    /// What follows, now that the head has ended.
    pub(super) fn end(&mut self) -> Body {
        let body = match self.framing {
            Framing::Unsaid => None,
            Framing::Length(0) => Some(Body::None),
            Framing::Length(length) => Some(Body::Length(length)),
            Framing::Chunked => Some(Body::Chunks),
        };
        match self.role {
            Role::Request { .. } => body.unwrap_or(Body::None),
            // Another protocol from here on.
            Role::Response { status: 101, .. } => Body::Unknown,
            Role::Response {
                status: 100..=199, ..
            } => {
                self.framing = Framing::Unsaid;
                Body::AnotherHead
            }
            Role::Response {
                status: 204 | 304, ..
            }
            | Role::Response {
                head_only: true, ..
            } => Body::None,
            // Without a length the body ends when the connection does.
            Role::Response { .. } => body.unwrap_or(Body::Unknown),
        }
    }
}

fn digits(bytes: &[u8]) -> Option<u64> {
    // `parse` alone would take a sign.
    bytes.first()?.is_ascii_digit().then_some(())?;
    str::from_utf8(bytes).ok()?.parse().ok()
}
