//! What this client makes of the documents in the file that all languages are tested against.
use std::error::Error;

use prost::Message;
use serde_json::json;

use crate::document::Document;
use crate::ssop::Chunk;
use crate::{plain, say};

pub fn show(path: &str) -> Result<(), Box<dyn Error>> {
    let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    for vector in file["vectors"].as_array().ok_or("no vectors")? {
        let mut document = Document::default();
        for chunk in vector["chunks"].as_array().ok_or("no chunks")? {
            let text = chunk.as_str().ok_or("no text")?;
            let bytes: Vec<u8> = (0..text.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&text[at..at + 2], 16))
                .collect::<Result<_, _>>()?;
            for frame in Chunk::decode(&*bytes)?.frames {
                if let Some(field) = document.take(frame)? {
                    say(json!({"vector": vector["name"], "path": field.pointer, "value": plain(field.value)}));
                }
            }
        }
        let verdict = document.end.as_ref().map(|end| end.verdict().as_str_name());
        say(json!({"vector": vector["name"], "verdict": verdict, "frames": document.last_seq}));
    }
    Ok(())
}
