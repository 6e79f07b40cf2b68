// Replaces the content of the page after each change by what the server sends.
const content = document.getElementById("content");
const state = document.getElementById("state");
const events = new EventSource("/events");
events.onmessage = (event) => {
  content.innerHTML = event.data;
  state.textContent = "live";
};
events.onerror = () => {
  state.textContent = "not connected";
};
