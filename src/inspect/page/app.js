// Shows what the runtime says of itself, as it comes.
const out = document.getElementById("snapshot");
new EventSource("/events").addEventListener("snapshot", (event) => {
  out.textContent = JSON.stringify(JSON.parse(event.data), null, 1);
});
