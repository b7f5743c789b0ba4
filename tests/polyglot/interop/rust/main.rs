//! tonic in gRPC's interop cases: `interop HOST:PORT AUTHORITY CASE...` prints a JSON line for each case, its error empty where
//! it went well. Built with the client of ../../rust.
use std::error::Error;
use std::time::Duration;

use prost::Message;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

const REQUEST_BYTES: [i32; 4] = [27_182, 8, 1_828, 45_904];
const RESPONSE_BYTES: [i32; 4] = [31_415, 9, 2_653, 58_979];
const SOAK_CALLS: usize = 40;
const SOAK_BYTES: i32 = 20_000;
/// The server drains its connections each 100 ms or so.
const AGING_PAUSE: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_secs(60);
const ECHO_INITIAL: &str = "x-grpc-test-echo-initial";
const ECHO_TRAILING: &str = "x-grpc-test-echo-trailing-bin";
const MESSAGE: &str = "test status message";
const SPECIAL_MESSAGE: &str = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(bytes = "vec", tag = "2")]
    body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct EchoStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct BoolValue {
    #[prost(bool, tag = "1")]
    value: bool,
}

#[derive(Clone, PartialEq, Message)]
struct SimpleRequest {
    #[prost(int32, tag = "2")]
    response_size: i32,
    #[prost(message, optional, tag = "3")]
    payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    response_status: Option<EchoStatus>,
    #[prost(message, optional, tag = "8")]
    expect_compressed: Option<BoolValue>,
}

#[derive(Clone, PartialEq, Message)]
struct SimpleResponse {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

#[derive(Clone, PartialEq, Message)]
struct InputRequest {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

#[derive(Clone, PartialEq, Message)]
struct InputResponse {
    #[prost(int32, tag = "1")]
    aggregated_payload_size: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Parameters {
    #[prost(int32, tag = "1")]
    size: i32,
}

#[derive(Clone, PartialEq, Message)]
struct OutputRequest {
    #[prost(message, repeated, tag = "2")]
    response_parameters: Vec<Parameters>,
    #[prost(message, optional, tag = "3")]
    payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    response_status: Option<EchoStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct OutputResponse {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

type Outcome = Result<(), Box<dyn Error>>;

fn payload(size: i32) -> Option<Payload> {
    Some(Payload { body: vec![0; size as usize] })
}

fn output(sizes: &[i32], sent: i32) -> OutputRequest {
    let response_parameters = sizes.iter().map(|&size| Parameters { size }).collect();
    OutputRequest { response_parameters, payload: payload(sent), response_status: None }
}

fn expect(is_so: bool, what: impl Into<String>) -> Outcome {
    if is_so {
        Ok(())
    } else {
        Err(what.into().into())
    }
}

fn size(response: Option<OutputResponse>) -> Option<usize> {
    response.map(|found| found.payload.unwrap_or_default().body.len())
}

/// The stub of the test service.
#[derive(Clone)]
struct Stub {
    target: String,
    authority: String,
    channel: Channel,
}

impl Stub {
    async fn connect(target: &str, authority: &str) -> Result<Stub, Box<dyn Error>> {
        let scheme = if authority.is_empty() { "http" } else { "https" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{target}"))?;
        if !authority.is_empty() {
            let roots = Certificate::from_pem(std::fs::read(authority)?);
            endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(roots))?;
        }
        let channel = endpoint.connect().await?;
        Ok(Stub { target: target.into(), authority: authority.into(), channel })
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }

    fn request<T>(message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(LIMIT);
        request
    }

    fn path(method: &str) -> PathAndQuery {
        let path = if method.starts_with('/') { method.into() } else { format!("/grpc.testing.TestService/{method}") };
        path.parse().expect("a path")
    }

    async fn unary<M, R>(&self, method: &str, request: Request<M>) -> Result<Response<R>, Status>
    where
        M: Message + Send + Sync + 'static,
        R: Message + Default + Send + Sync + 'static,
    {
        self.grpc().await?.unary(request, Self::path(method), ProstCodec::<M, R>::default()).await
    }

    /// A dialogue, and where its messages are put.
    async fn duplex(
        &self,
        timeout: Duration,
    ) -> Result<(mpsc::Sender<OutputRequest>, Request<ReceiverStream<OutputRequest>>), Status> {
        let (sender, receiver) = mpsc::channel(8);
        let mut request = Request::new(ReceiverStream::new(receiver));
        request.set_timeout(timeout);
        Ok((sender, request))
    }

    async fn begin(
        &self,
        request: Request<ReceiverStream<OutputRequest>>,
    ) -> Result<Response<Streaming<OutputResponse>>, Status> {
        let codec = ProstCodec::<OutputRequest, OutputResponse>::default();
        self.grpc().await?.streaming(request, Self::path("FullDuplexCall"), codec).await
    }

    async fn large(&self, sent: i32, expected: i32) -> Outcome {
        let request = SimpleRequest { response_size: expected, payload: payload(sent), ..Default::default() };
        let found: SimpleResponse = self.unary("UnaryCall", Self::request(request)).await?.into_inner();
        expect(found.payload.unwrap_or_default().body.len() == expected as usize, "another size")
    }

    /// A large call, sent in gzip or not, that says what it was sent in.
    async fn compressed(&self, is_packed: bool, is_said: bool) -> Result<SimpleResponse, Status> {
        let expect_compressed = Some(BoolValue { value: is_said });
        let request = SimpleRequest {
            response_size: 314_159,
            payload: payload(271_828),
            expect_compressed,
            ..Default::default()
        };
        let mut grpc = self.grpc().await?;
        if is_packed {
            grpc = grpc.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip);
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        }
        let codec = ProstCodec::<SimpleRequest, SimpleResponse>::default();
        Ok(grpc.unary(Self::request(request), Self::path("UnaryCall"), codec).await?.into_inner())
    }

    async fn run(&self, case: &str) -> Outcome {
        match case {
            "empty_unary" => {
                self.unary::<Empty, Empty>("EmptyCall", Self::request(Empty {})).await?;
                Ok(())
            }
            "large_unary" => self.large(271_828, 314_159).await,
            "gzip_large_unary" => {
                let request =
                    SimpleRequest { response_size: 314_159, payload: payload(271_828), ..Default::default() };
                let codec = ProstCodec::<SimpleRequest, SimpleResponse>::default();
                let gzip = CompressionEncoding::Gzip;
                let mut grpc = self.grpc().await?.send_compressed(gzip).accept_compressed(gzip);
                grpc.ready().await?;
                let found = grpc.unary(Self::request(request), Self::path("UnaryCall"), codec).await?.into_inner();
                expect(found.payload.unwrap_or_default().body.len() == 314_159, "another size")
            }
            "client_compressed_unary" => {
                let probe = self.compressed(false, true).await;
                expect(probe.is_err_and(|status| status.code() == Code::InvalidArgument), "the probe")?;
                for is_packed in [true, false] {
                    let found = self.compressed(is_packed, is_packed).await?;
                    expect(found.payload.unwrap_or_default().body.len() == 314_159, "another size")?;
                }
                Ok(())
            }
            "client_streaming" => {
                let requests: Vec<_> = REQUEST_BYTES.iter().map(|&n| InputRequest { payload: payload(n) }).collect();
                let codec = ProstCodec::<InputRequest, InputResponse>::default();
                let request = Self::request(tokio_stream::iter(requests));
                let found =
                    self.grpc().await?.client_streaming(request, Self::path("StreamingInputCall"), codec).await?;
                expect(found.into_inner().aggregated_payload_size == 74_922, "another sum")
            }
            "server_streaming" => {
                let codec = ProstCodec::<OutputRequest, OutputResponse>::default();
                let request = Self::request(output(&RESPONSE_BYTES, 0));
                let path = Self::path("StreamingOutputCall");
                let mut stream = self.grpc().await?.server_streaming(request, path, codec).await?.into_inner();
                for expected in RESPONSE_BYTES {
                    expect(size(stream.message().await?) == Some(expected as usize), "another size")?;
                }
                expect(stream.message().await?.is_none(), "more than was asked for")
            }
            "ping_pong" => {
                let (sender, request) = self.duplex(LIMIT).await?;
                sender.send(output(&RESPONSE_BYTES[..1], REQUEST_BYTES[0])).await?;
                let mut stream = self.begin(request).await?.into_inner();
                for index in 0..RESPONSE_BYTES.len() {
                    if index > 0 {
                        sender.send(output(&RESPONSE_BYTES[index..=index], REQUEST_BYTES[index])).await?;
                    }
                    expect(size(stream.message().await?) == Some(RESPONSE_BYTES[index] as usize), "another size")?;
                }
                drop(sender);
                expect(stream.message().await?.is_none(), "more than was asked for")
            }
            "empty_stream" => {
                let (sender, request) = self.duplex(LIMIT).await?;
                drop(sender);
                expect(self.begin(request).await?.into_inner().message().await?.is_none(), "a message")
            }
            "custom_metadata" => self.custom_metadata().await,
            "status_code_and_message" => {
                self.expect_status(MESSAGE).await?;
                let (sender, request) = self.duplex(LIMIT).await?;
                let response_status = Some(EchoStatus { code: 2, message: MESSAGE.into() });
                sender.send(OutputRequest { response_status, ..output(&[], 0) }).await?;
                drop(sender);
                let status = match self.begin(request).await {
                    Ok(response) => response.into_inner().message().await.err(),
                    Err(status) => Some(status),
                };
                expect(
                    status.is_some_and(|s| s.code() == Code::Unknown && s.message() == MESSAGE),
                    "another status of the dialogue",
                )
            }
            "special_status_message" => self.expect_status(SPECIAL_MESSAGE).await,
            "unimplemented_method" => self.expect_unimplemented("UnimplementedCall").await,
            "unimplemented_service" => {
                self.expect_unimplemented("/grpc.testing.UnimplementedService/UnimplementedCall").await
            }
            "cancel_after_begin" => {
                // Dropping the call is how tonic cancels; that another one is served afterwards shows that it went well.
                let (sender, request) = self.duplex(LIMIT).await?;
                let begun = tokio::time::timeout(Duration::from_millis(10), self.begin(request)).await;
                drop((begun, sender));
                self.large(10, 10).await
            }
            "cancel_after_first_response" => {
                let (sender, request) = self.duplex(LIMIT).await?;
                sender.send(output(&RESPONSE_BYTES[..1], REQUEST_BYTES[0])).await?;
                let mut stream = self.begin(request).await?.into_inner();
                expect(size(stream.message().await?) == Some(RESPONSE_BYTES[0] as usize), "another size")?;
                drop((stream, sender));
                self.large(10, 10).await
            }
            "timeout_on_sleeping_server" => {
                let (sender, request) = self.duplex(Duration::from_millis(1)).await?;
                sender.send(output(&[], 27_182)).await?;
                let status = match self.begin(request).await {
                    Ok(response) => response.into_inner().message().await.err(),
                    Err(status) => Some(status),
                };
                // tonic's own clock says CANCELLED, the server's DEADLINE_EXCEEDED; either may be first.
                let found = status.map(|s| (s.code(), s.message().to_owned()));
                expect(
                    matches!(&found, Some((Code::DeadlineExceeded, _)))
                        || matches!(&found, Some((Code::Cancelled, text)) if text == "Timeout expired"),
                    format!("{found:?}"),
                )
            }
            "rpc_soak" => self.soak(Duration::ZERO).await,
            "aging_soak" => self.soak(AGING_PAUSE).await,
            "channel_soak" => {
                for _ in 0..SOAK_CALLS {
                    Stub::connect(&self.target, &self.authority).await?.large(SOAK_BYTES, SOAK_BYTES).await?;
                }
                Ok(())
            }
            _ => Err("no such case".into()),
        }
    }

    async fn soak(&self, pause: Duration) -> Outcome {
        for _ in 0..SOAK_CALLS {
            // tonic leaves it to its caller to repeat a call that a GOAWAY kept from being sent.
            match self.large(SOAK_BYTES, SOAK_BYTES).await {
                Err(error) if !pause.is_zero() && format!("{error:?}").contains("connection closed") => {
                    self.large(SOAK_BYTES, SOAK_BYTES).await?
                }
                outcome => outcome?,
            }
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    async fn custom_metadata(&self) -> Outcome {
        let trailing = MetadataValue::from_bytes(b"\xab\xab\xab");
        let mut unary = Self::request(SimpleRequest { response_size: 1, payload: payload(1), ..Default::default() });
        let (sender, mut dialogue) = self.duplex(LIMIT).await?;
        for metadata in [unary.metadata_mut(), dialogue.metadata_mut()] {
            metadata.insert(ECHO_INITIAL, "test_initial_metadata_value".parse()?);
            metadata.insert_bin(ECHO_TRAILING, trailing.clone());
        }
        let found: Response<SimpleResponse> = self.unary("UnaryCall", unary).await?;
        expect(found.metadata().get(ECHO_INITIAL).is_some_and(|v| v == "test_initial_metadata_value"), "no initial")?;
        expect(found.metadata().get_bin(ECHO_TRAILING) == Some(&trailing), "no trailing")?;
        sender.send(output(&[1], 1)).await?;
        drop(sender);
        let response = self.begin(dialogue).await?;
        expect(
            response.metadata().get(ECHO_INITIAL).is_some_and(|v| v == "test_initial_metadata_value"),
            "no initial",
        )?;
        let mut stream = response.into_inner();
        while stream.message().await?.is_some() {}
        let trailers = stream.trailers().await?.unwrap_or_default();
        expect(trailers.get_bin(ECHO_TRAILING) == Some(&trailing), "no trailing of the dialogue")
    }

    async fn expect_status(&self, message: &str) -> Outcome {
        let response_status = Some(EchoStatus { code: 2, message: message.into() });
        let request = SimpleRequest { response_status, ..Default::default() };
        match self.unary::<_, SimpleResponse>("UnaryCall", Self::request(request)).await {
            Err(status) if status.code() == Code::Unknown && status.message() == message => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }

    async fn expect_unimplemented(&self, method: &str) -> Outcome {
        match self.unary::<_, Empty>(method, Self::request(Empty {})).await {
            Err(status) if status.code() == Code::Unimplemented => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let stub = Stub::connect(&arguments[0], &arguments[1]).await?;
    for case in &arguments[2..] {
        let outcome = tokio::time::timeout(2 * LIMIT, stub.run(case)).await;
        let error = match outcome {
            Ok(Ok(())) => String::new(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it did not end".into(),
        };
        println!("{}", json!({"case": case, "error": error}));
    }
    Ok(())
}
