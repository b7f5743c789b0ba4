//! A client of SSOP Mesh on tonic and stubs generated from protos/ alone. Each scenario prints JSON lines.
mod document;
mod vectors;
/// What tonic and prost make of protos/.
#[allow(clippy::all, dead_code)]
mod ssop {
    tonic::include_proto!("ssop.v1");
}

use std::error::Error;
use std::time::Duration;

use prost::Message as _;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt;

use document::{Document, Value};
use ssop::frame::Content;
use ssop::router_service_client::RouterServiceClient;
use ssop::{content_part, session_request, session_response};
use ssop::{Chunk, ContentPart, GenerateRequest, Message, OutputSchema, Prompt, ResumeRequest, Role};
use ssop::{SessionBegin, SessionCommit, SessionCredit, SessionRequest, SessionResponse};

const SCHEMA: &str = r#"{"type": "object",
 "properties": {"mood": {"type": "string"}, "score": {"type": "integer", "maximum": 10}},
 "required": ["mood", "score"], "additionalProperties": false}"#;

const REFUSED: &str = r#"{"properties": {"mood": {"$ref": "http://x/y"}}}"#;

/// A client of one mesh.
struct Mesh {
    client: RouterServiceClient<Channel>,
    key: String,
    timeout: Duration,
}

impl Mesh {
    /// A request with the key and the deadline that every call wants.
    fn call<T>(&self, message: T) -> Result<Request<T>, Box<dyn Error>> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.key).parse()?);
        request.set_timeout(self.timeout);
        Ok(request)
    }

    async fn generate(&mut self, asked: GenerateRequest, limit: usize) -> Result<Document, Box<dyn Error>> {
        let call = self.call(asked)?;
        let mut stream = self.client.generate(call).await?.into_inner();
        let mut document = Document::default();
        show(&mut document, &mut stream, limit).await?;
        if limit == 0 {
            let trailers = stream.trailers().await?.unwrap_or_default();
            let status: Vec<_> =
                trailers.get_all("x-ssop-status").iter().map(|value| value.to_str()).collect::<Result<_, _>>()?;
            say(json!({"status": status}));
        }
        Ok(document) // the stream is dropped here; where it has not ended, that cancels the generation
    }

    async fn session(&mut self, schema: &str) -> Result<(), Box<dyn Error>> {
        let about = |message| SessionRequest { request_id: "typed".into(), message: Some(message) };
        let (send, receive) = mpsc::channel(8);
        let begin = SessionBegin { request: Some(request("How is ", schema)), ..Default::default() };
        send.send(about(session_request::Message::Begin(begin))).await?;
        send.send(about(session_request::Message::Piece("the ".into()))).await?;
        send.send(about(session_request::Message::Piece("mood?".into()))).await?;
        send.send(about(session_request::Message::Commit(SessionCommit {}))).await?;
        let call = self.call(ReceiverStream::new(receive))?;
        let mut stream = self.client.session(call).await?.into_inner();
        let mut document = Document::default();
        while let Some(SessionResponse { message, .. }) = stream.message().await? {
            match message {
                Some(session_response::Message::Chunk(chunk)) => {
                    // Without credit for what was read, an answer stops after 64 KiB.
                    let credit = SessionCredit { bytes: chunk.encoded_len() as u32 };
                    show_chunk(&mut document, chunk)?;
                    send.send(about(session_request::Message::Credit(credit))).await?;
                }
                Some(session_response::Message::Finished(finished)) => {
                    let status = finished.status.unwrap_or_default();
                    if status.code != 0 {
                        let details = status.encode_to_vec().into(); // the same on the wire as google.rpc.Status
                        return Err(Status::with_details(Code::from(status.code), status.message, details).into());
                    }
                    break;
                }
                None => {}
            }
        }
        say_verdict(&document);
        Ok(())
    }

    /// Loses its connection after the first field, and goes on from there without running the model again.
    async fn resume(&mut self) -> Result<(), Box<dyn Error>> {
        let mut asked = request("How is the mood?", SCHEMA);
        asked.request_id = "resumed".into();
        asked.resume_window_ms = 10_000;
        let mut document = self.generate(asked, 1).await?;
        let rest = self.call(ResumeRequest { request_id: "resumed".into(), after_seq: document.last_seq })?;
        let mut stream = self.client.resume(rest).await?.into_inner();
        show(&mut document, &mut stream, 0).await
    }
}

fn request(text: &str, schema: &str) -> GenerateRequest {
    let part = ContentPart { part: Some(content_part::Part::Text(text.into())), ..Default::default() };
    let message = Message { role: Role::User.into(), parts: vec![part], ..Default::default() };
    let schema = OutputSchema { json_schema: schema.into(), ..Default::default() };
    let prompt = Prompt { messages: vec![message], output_schema: Some(schema), ..Default::default() };
    GenerateRequest { prompt: Some(prompt), ..Default::default() }
}

/// Prints the fields of chunks as they arrive, and how the answer ended. Stops after `limit` fields; 0: never.
async fn show(document: &mut Document, stream: &mut Streaming<Chunk>, limit: usize) -> Result<(), Box<dyn Error>> {
    let mut fields = 0;
    while let Some(chunk) = stream.message().await? {
        fields += show_chunk(document, chunk)?;
        if limit > 0 && fields >= limit {
            return Ok(());
        }
    }
    say_verdict(document);
    Ok(())
}

/// Prints the fields of a chunk, and returns how many.
fn show_chunk(document: &mut Document, chunk: Chunk) -> Result<usize, Box<dyn Error>> {
    let mut fields = 0;
    for frame in chunk.frames {
        if let Some(Content::Status(status)) = &frame.content {
            say(json!({"degraded_level": status.degraded_level}));
        }
        if let Some(field) = document.take(frame)? {
            say(json!({"path": field.pointer, "value": plain(field.value)}));
            fields += 1;
        }
    }
    Ok(fields)
}

fn say_verdict(document: &Document) {
    let verdict = document.end.as_ref().map(|end| end.verdict().as_str_name());
    say(json!({"verdict": verdict, "frames": document.last_seq}));
}

fn plain(value: Value) -> serde_json::Value {
    match value {
        Value::Text(text) | Value::Number(text) => json!(text),
        Value::Double(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Bool(value) => json!(value),
        Value::Null => json!(null),
    }
}

fn say(line: serde_json::Value) {
    println!("{line}");
}

/// Prints what an error says beside its text: google.rpc.Status in the trailing metadata.
fn explain(error: &Status) {
    if let Some(info) = error.get_details_error_info() {
        say(json!({"reason": info.reason, "domain": info.domain, "pointer": info.metadata.get("pointer")}));
    }
    for violation in error.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default() {
        say(json!({"field": violation.field}));
    }
    say(json!({"code": format!("{:?}", error.code())}));
}

async fn run(scenario: &str, target: &str) -> Result<(), Box<dyn Error>> {
    if scenario == "vectors" {
        return vectors::show(target);
    }
    let channel = Endpoint::from_shared(format!("http://{target}"))?.connect().await?;
    let mut mesh = Mesh {
        client: RouterServiceClient::new(channel),
        key: std::env::var("SSOP_API_KEY")?,
        timeout: Duration::from_millis(if scenario == "deadline" { 500 } else { 20_000 }),
    };
    let question = "How is the mood?";
    match scenario {
        "generate" | "deadline" => drop(mesh.generate(request(question, SCHEMA), 0).await?),
        "cancel" => drop(mesh.generate(request(question, SCHEMA), 1).await?),
        // A model by name: where none of its nodes can serve, another answers and says so.
        "degraded" => {
            drop(mesh.generate(GenerateRequest { model: "grok-3".into(), ..request(question, SCHEMA) }, 0).await?)
        }
        "refused" => drop(mesh.generate(request(question, REFUSED), 0).await?),
        "session" => mesh.session(SCHEMA).await?,
        "session-refused" => mesh.session(REFUSED).await?,
        "resume" => mesh.resume().await?,
        _ => return Err(format!("no scenario {scenario}").into()),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, scenario, target] = &arguments[..] else {
        eprintln!("usage: ssop-polyglot-rust SCENARIO TARGET");
        return 2.into();
    };
    let Err(error) = run(scenario, target).await else { return 0.into() };
    match error.downcast_ref::<Status>() {
        Some(status) => explain(status),
        None => eprintln!("{error}"),
    }
    1.into()
}
