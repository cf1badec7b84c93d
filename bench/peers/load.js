// k6 reads whole bodies: its wait for the first byte is the nearest it has to a first token.
import http from "k6/http";

const rate = Number(__ENV.RATE);
const open = {
  executor: "constant-arrival-rate",
  rate,
  timeUnit: "1s",
  duration: `${__ENV.SECONDS}s`,
  // A virtual user sends one request at a time; enough for answers of 1.5 s.
  preAllocatedVUs: Math.max(50, Math.ceil(1.5 * rate)),
  maxVUs: 3000,
};
const closed = { executor: "shared-iterations", vus: Number(__ENV.STREAMS), iterations: Number(__ENV.REQUESTS) };

export const options = {
  discardResponseBodies: false,
  summaryTrendStats: ["med", "p(90)", "p(99)", "max"],
  scenarios: { load: rate > 0 ? open : closed },
};

const body = JSON.stringify({
  model: __ENV.MODEL,
  stream: true,
  max_tokens: 32,
  messages: [{ role: "user", content: "w1 w2 w3 w4 w5" }],
});
const parameters = { headers: { "content-type": "application/json" } };

export default function () {
  http.post(`${__ENV.BASE_URL}/v1/chat/completions`, body, parameters);
}
