//! Generates the stubs from the descriptors that build.sh made of protos/.
use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build/protos.bin");
    let protos = prost_types::FileDescriptorSet::decode(&*std::fs::read("build/protos.bin")?)?;
    tonic_prost_build::configure().build_server(false).compile_fds(protos)?;
    Ok(())
}
