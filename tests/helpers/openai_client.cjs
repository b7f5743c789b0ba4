// The official `openai` SDK for Node against the edge: node openai_client.cjs URL KEY. Prints what it got as JSON.
const OpenAI = require("openai");

async function main() {
  const [baseURL, apiKey] = process.argv.slice(2);
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 10_000 });
  const messages = [{ role: "user", content: "Who?" }];
  const schema = { type: "object", properties: { name: { type: "string" } } };
  const response_format = { type: "json_schema", json_schema: { name: "person", schema } };
  const found = {};

  const whole = await client.chat.completions.create({ model: "small", messages, response_format });
  found.whole = JSON.parse(whole.choices[0].message.content);
  found.usage = whole.usage.total_tokens;

  const stream = await client.chat.completions.create({
    model: "small", messages, response_format, stream: true, stream_options: { include_usage: true },
  });
  let text = "";
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    found.streamUsage = chunk.usage?.total_tokens ?? found.streamUsage;
  }
  found.streamed = JSON.parse(text);

  found.models = [];
  for await (const model of client.models.list()) found.models.push(model.id);

  const heard = [];
  const find = {
    name: "find", description: "Finds a person.", parameters: schema, parse: JSON.parse,
    function: (person) => { heard.push(person); return "found"; },
  };
  const tools = [{ type: "function", function: find }];
  found.answered = await client.chat.completions.runTools({ model: "small", messages, tools }).finalContent();
  found.heard = heard;
  const calling = client.chat.completions.stream({
    model: "small", messages, tools: [{ type: "function", function: { name: "find", parameters: schema } }],
    tool_choice: "required",
  });
  const call = (await calling.finalChatCompletion()).choices[0];
  found.call = { name: call.message.tool_calls[0].function.name, finish: call.finish_reason };
  found.arguments = JSON.parse(call.message.tool_calls[0].function.arguments);

  try {
    await client.chat.completions.create({ model: "small", messages, n: 2 });
  } catch (error) {
    found.refused = { kind: error.constructor.name, status: error.status, param: error.param, code: error.code };
  }
  console.log(JSON.stringify(found));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
