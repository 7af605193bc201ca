// Applications on the Vercel AI SDK, one function each: `record.py` runs them in a folder that has its packages
// (ai, @ai-sdk/openai, zod, @opentelemetry/sdk-trace-node, @opentelemetry/exporter-trace-otlp-proto).
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { generateObject, generateText, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { z } = await load("zod");
const { BatchSpanProcessor, NodeTracerProvider } = await load("@opentelemetry/sdk-trace-node");
const { OTLPTraceExporter } = await load("@opentelemetry/exporter-trace-otlp-proto");
const { resourceFromAttributes } = await load("@opentelemetry/resources");

const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ "service.name": process.env.OTEL_SERVICE_NAME ?? "weather", "deployment.environment.name": "staging" }),
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
});
provider.register();

const openai = createOpenAI({ baseURL: `${process.env.MODEL_URL}/v1`, apiKey: "test" });
const question = {
  model: openai.chat("gpt-5-mini"),
  system: "You are a weather assistant.",
  prompt: "What is the weather in Paris?",
  maxRetries: 0,
};
const telemetry = (options) => ({
  experimental_telemetry: {
    isEnabled: true,
    functionId: "weather",
    metadata: { userId: "ann@example.com", sessionId: "session-1", tenant: "acme", tags: ["beta"] },
    ...options,
  },
});
const weather = {
  tools: {
    get_weather: tool({
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => ({ city, degrees: 21, sky: "sunny" }),
    }),
  },
  stopWhen: stepCountIs(4),
};
const failing = {
  ...weather,
  tools: {
    get_weather: tool({
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async () => {
        throw new TypeError("the weather service does not answer");
      },
    }),
  },
};

const applications = {
  vercel_ai_generate: () => generateText({ ...question, ...weather, ...telemetry() }),
  vercel_ai_stream: async () => {
    for await (const _ of streamText({ ...question, ...weather, ...telemetry() }).textStream);
  },
  vercel_ai_messages: () => {
    const { prompt, ...rest } = question;
    const messages = [
      { role: "user", content: "Hello." },
      { role: "assistant", content: "Hello, how can I help?" },
      { role: "user", content: [{ type: "text", text: prompt }] },
    ];
    return generateText({ ...rest, messages, ...telemetry() });
  },
  vercel_ai_failing_tool: () => generateText({ ...question, ...failing, ...telemetry() }),
  vercel_ai_no_content: () =>
    generateText({ ...question, ...weather, ...telemetry({ recordInputs: false, recordOutputs: false }) }),
  vercel_ai_error: () =>
    generateText({ ...question, prompt: "fail with status 400", ...telemetry() }).catch((error) => console.log(error.name)),
  vercel_ai_object: () =>
    generateObject({ ...question, schema: z.object({ degrees: z.number() }), ...telemetry() }).catch((error) =>
      console.log(error.name),
    ),
};

// vercel_ai5_stream is vercel_ai_stream in a folder with version 5.
await applications[process.argv[2].replace(/^vercel_ai\d_/, "vercel_ai_")]();
await provider.shutdown();
const fs = await import("node:fs");
const versions = {};
for (const name of ["ai", "@ai-sdk/openai"]) {
  versions[name] = JSON.parse(fs.readFileSync(`${process.cwd()}/node_modules/${name}/package.json`)).version;
}
console.log(JSON.stringify(versions));
