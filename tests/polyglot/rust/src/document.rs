//! Turns frames into fields. codec/SPEC.md, sections 3 to 9.
use std::collections::VecDeque;

use crate::ssop::{frame::Content, path_step::Step, End, FieldNode, FieldStep, Frame, FrameKind, PathStep};

/// A completed value of a document.
pub struct Field {
    /// JSON Pointer (RFC 6901).
    pub pointer: String,
    pub value: Value,
}

pub enum Value {
    Text(String),
    Double(f64),
    Int(i64),
    Bool(bool),
    Null,
    /// The text of a number that neither an i64 nor an f64 holds.
    Number(String),
}

/// A document as its frames arrive.
#[derive(Default)]
pub struct Document {
    pub end: Option<End>,
    pub last_seq: u64,
    table: Vec<FieldNode>,
    parts: String,
}

impl Document {
    /// Reads a frame; the field that it completes, if any.
    pub fn take(&mut self, frame: Frame) -> Result<Option<Field>, String> {
        // Mesh frames speak of the delivery and have no sequence number; a frame that comes again counts once.
        if frame.document != 0 || frame.seq <= self.last_seq {
            return Ok(None);
        }
        if frame.seq != self.last_seq + 1 {
            return Err(format!("frames {} to {} were lost", self.last_seq + 1, frame.seq - 1));
        }
        self.last_seq = frame.seq;
        match (frame.kind(), frame.content) {
            (FrameKind::Header, Some(Content::Header(header))) => {
                if self.table.is_empty() && header.wire_version != 1 {
                    return Err(format!("wire version {}", header.wire_version));
                }
                self.table.extend(header.nodes);
            }
            (FrameKind::Part, Some(Content::StringValue(part))) => self.parts.push_str(&part),
            (FrameKind::End, Some(Content::End(end))) => self.end = Some(end),
            (FrameKind::Value, Some(content)) => {
                let pointer = self.pointer(frame.node, frame.path.into())?;
                return Ok(Some(Field { pointer, value: self.value(content) }));
            }
            _ => {} // CLOSE, and kinds that are not known yet
        }
        Ok(None)
    }

    fn value(&mut self, content: Content) -> Value {
        match content {
            Content::StringValue(last) => Value::Text(std::mem::take(&mut self.parts) + &last),
            Content::DoubleValue(value) => Value::Double(value),
            Content::IntValue(value) => Value::Int(value),
            Content::BoolValue(value) => Value::Bool(value),
            Content::JsonValue(text) => Value::Number(String::from_utf8_lossy(&text).into_owned()),
            _ => Value::Null,
        }
    }

    /// Walks from node 0 to `node`, and takes a step of the path where the table says so.
    fn pointer(&self, node: u32, mut steps: VecDeque<PathStep>) -> Result<String, String> {
        let mut out = String::new();
        let mut base = 0;
        loop {
            let reference = steps.iter().find_map(|step| match step.step {
                Some(Step::RefNode(number)) => Some(number),
                _ => None,
            });
            let target = reference.unwrap_or(node);
            let mut chain = Vec::new(); // from target to below base
            let mut number = target;
            while number != base {
                let node = self.node(number)?;
                if node.parent >= number {
                    return Err("a node is not below its reference".into());
                }
                chain.push(node);
                number = node.parent;
            }
            for node in chain.into_iter().rev() {
                match node.step() {
                    FieldStep::Property => push_key(&mut out, &node.key),
                    FieldStep::PrefixItem => push_index(&mut out, node.index),
                    // An item, or the value of a map: which one is in the frame.
                    _ => push_step(&mut out, &steps.pop_front().ok_or("a path is too short")?),
                }
            }
            if reference.is_none() {
                break;
            }
            // A walk ends at a reference, and the next one starts where it refers to.
            steps.pop_front();
            base = self.node(target)?.ref_node();
        }
        for step in &steps {
            push_step(&mut out, step); // below the table: an untyped value
        }
        Ok(out)
    }

    fn node(&self, number: u32) -> Result<&FieldNode, String> {
        self.table.get(number as usize).ok_or_else(|| format!("the field table has no node {number}"))
    }
}

fn push_step(out: &mut String, step: &PathStep) {
    match &step.step {
        Some(Step::Key(key)) => push_key(out, key),
        Some(Step::Index(index)) => push_index(out, *index),
        _ => push_index(out, 0), // an index of 0 that a writer left out
    }
}

fn push_key(out: &mut String, key: &str) {
    out.push('/');
    out.push_str(&key.replace('~', "~0").replace('/', "~1"));
}

fn push_index(out: &mut String, index: u32) {
    out.push_str(&format!("/{index}"));
}
